// Commands about executors.
#include "client/launch.h"
#include "tools/capstan/catalog-views.h"
#include "tools/capstan/commands.h"
#include "tools/capstan/views.h"

#include <cstdio>

namespace capstan::cli {

namespace {

using ExecutorTable = rpc::Table<rpc::Executor>;

ExecutorTable::Client executors(Context& context) {
  return context.admin().executorsRequest().send().getTable();
}

int print(Context& context, rpc::Executor::Reader executor) {
  if (context.json()) {
    JsonWriter json;
    writeJson(json, executor);
    context.print(json);
    return 0;
  }
  std::printf("executor     %s\nname         %s\ntype         %s\nstatus       %s\n",
              executor.getId().cStr(), plain(executor.getName()).cStr(), executor.getType().cStr(),
              executor.getStatus().cStr());
  if (executor.getIsSystem()) std::printf("system       yes\n");
  std::printf("version      %llu\n", static_cast<unsigned long long>(executor.getVersion()));
  if (executor.getUpdatedAt() != 0) {
    std::printf("changed      %s\n", timeText(executor.getUpdatedAt()).cStr());
  }
  for (auto pair: executor.getConfig()) {
    std::printf("config       %s=%s\n", plain(pair.getKey()).cStr(), plain(pair.getValue()).cStr());
  }
  return 0;
}

capnp::Response<ExecutorTable::PutResults> put(
    Context& context, capnp::Request<ExecutorTable::PutParams, ExecutorTable::PutResults> request) {
  return ask<ExecutorTable::PutResults>(context, kj::mv(request));
}

}  // namespace

int runExecutorList(Context& context) {
  context.noMoreWords(0);
  kj::Vector<capnp::Response<ExecutorTable::ListResults>> pages;
  kj::String after;
  do {
    auto request = executors(context).listRequest();
    request.setAfter(after);
    pages.add(ask<ExecutorTable::ListResults>(context, kj::mv(request)));
    after = kj::str(pages.back().getNext());
  } while (after.size() > 0);
  if (context.json()) {
    JsonWriter json;
    json.beginObject().key("executors").beginArray();
    for (auto& page: pages) {
      for (auto row: page.getRows())
        writeJson(json, row.getValue());
    }
    json.endArray().endObject();
    context.print(json);
    return 0;
  }
  Table table({"EXECUTOR", "NAME", "TYPE", "STATUS", "VERSION"});
  for (auto& page: pages) {
    for (auto row: page.getRows()) {
      auto executor = row.getValue();
      kj::Vector<kj::String> cells;
      cells.add(kj::str(executor.getId()));
      cells.add(kj::str(executor.getName()));
      cells.add(kj::str(executor.getType()));
      cells.add(kj::str(executor.getStatus()));
      cells.add(kj::str(executor.getVersion()));
      table.row(kj::mv(cells));
    }
  }
  std::printf("%s", table.finish().cStr());
  return 0;
}

int runExecutorShow(Context& context) {
  auto name = context.word(0, "E");
  context.noMoreWords(1);
  return print(context, getExecutor(context, name).getRow());
}

int runExecutorAdd(Context& context) {
  auto type = context.word(0, "TYPE");
  auto name = context.word(1, "NAME");
  auto settings = readSettings(context, 2);
  auto request = executors(context).putRequest();
  auto row = request.initRow();
  row.setType(type);
  row.setName(name);
  mergeConfig({}, settings, [row](uint32_t size) mutable { return row.initConfig(size); });
  auto response = put(context, kj::mv(request));
  check(response.getError());
  return print(context, response.getRow());
}

int runExecutorUpdate(Context& context) {
  auto name = context.word(0, "E");
  auto settings = readSettings(context, 1);
  auto& arguments = context.arguments;
  auto asked = versionOption(context);
  bool enable = arguments.has("--enable"), disable = arguments.has("--disable");
  if (enable && disable) failUsage(kj::str("--enable and --disable contradict each other"));
  if (settings.size() == 0 && !enable && !disable && !arguments.has("--name")) {
    failUsage(kj::str("nothing to change: give key=value, --name, --enable or --disable"));
  }
  for (int tries = 1;; ++tries) {
    auto found = getExecutor(context, name);
    auto present = found.getRow();
    auto request = executors(context).putRequest();
    request.setId(present.getId());
    // Single keys are put into the config that was read, so that one has to be still there.
    request.setIfVersion(
        asked.orDefault(settings.size() > 0 ? found.getVersion() : rpc::ANY_VERSION));
    auto row = request.initRow();
    KJ_IF_MAYBE (next, arguments.get("--name")) {
      row.setName(*next);
    }
    if (enable || disable) row.setStatus(enable ? "active" : "disabled");
    if (settings.size() > 0) {
      mergeConfig(present.getConfig(), settings,
                  [row](uint32_t size) mutable { return row.initConfig(size); });
    }
    auto response = put(context, kj::mv(request));
    if (isOvertaken(response.getError()) && asked == nullptr && tries < MOST_TRIES) continue;
    check(response.getError());
    return print(context, response.getRow());
  }
}

int runExecutorRemove(Context& context) {
  auto name = context.word(0, "E");
  context.noMoreWords(1);
  auto id = kj::str(getExecutor(context, name).getRow().getId());
  auto request = executors(context).removeRequest();
  request.setId(id);
  request.setIfVersion(versionOption(context).orDefault(rpc::ANY_VERSION));
  check(ask<ExecutorTable::RemoveResults>(context, kj::mv(request)).getError());
  if (context.json()) {
    JsonWriter json;
    json.beginObject().member("id", id).endObject();
    context.print(json);
  }
  return 0;
}

int runExecutorDefault(Context& context) {
  context.noMoreWords(1);
  auto tenant = context.arguments.get("--tenant");
  bool clear = context.arguments.has("--clear");
  bool given = context.arguments.words().size() > 0;
  if (clear && given) failUsage(kj::str("--clear takes no executor"));
  KJ_IF_MAYBE (name, tenant) {
    if (name->size() == 0) failUsage(kj::str("the tenant's name is empty"));
  }
  if (clear || given) {
    auto request = context.admin().setDefaultExecutorRequest();
    request.setTenantId(tenant.orDefault(""_kj));
    if (given) request.setExecutorId(context.word(0, "E"));
    check(ask<rpc::Admin::SetDefaultExecutorResults>(context, kj::mv(request)).getError());
    if (!context.json()) return 0;
  }
  auto response =
      ask<rpc::Admin::DefaultExecutorsResults>(context, context.admin().defaultExecutorsRequest());
  JsonWriter json;
  json.beginObject().key("defaults").beginArray();
  Table table({"TENANT", "EXECUTOR"});
  for (auto row: response.getDefaults()) {
    if (row.getTenantId() != tenant.orDefault(row.getTenantId())) continue;
    json.beginObject()
        .member("tenantId", kj::StringPtr(row.getTenantId()))
        .member("executorId", kj::StringPtr(row.getExecutorId()))
        .endObject();
    kj::Vector<kj::String> cells;
    cells.add(row.getTenantId().size() == 0 ? kj::str("(all)") : kj::str(row.getTenantId()));
    cells.add(kj::str(row.getExecutorId()));
    table.row(kj::mv(cells));
  }
  json.endArray().endObject();
  if (context.json()) {
    context.print(json);
  } else {
    std::printf("%s", table.finish().cStr());
  }
  return 0;
}

}  // namespace capstan::cli
