// Commands about executor profiles.
#include "client/launch.h"
#include "tools/capstan/catalog-views.h"
#include "tools/capstan/commands.h"
#include "tools/capstan/views.h"

#include <cstdio>
#include <cstring>

namespace capstan::cli {

namespace {

using ProfileTable = rpc::Table<rpc::Profile>;

constexpr size_t MOST_SCRIPT = 900u << 10;  // One message holds 1 MiB; the daemon's limit is lower.

ProfileTable::Client profiles(Context& context) {
  return context.admin().profilesRequest().send().getTable();
}

void printScript(kj::StringPtr title, kj::StringPtr script) {
  if (script.size() == 0) return;
  std::printf("\n%s\n", title.cStr());
  while (script.size() > 0) {
    auto end = script.findFirst('\n').orDefault(script.size());
    std::printf("  %s\n", plain(kj::str(script.slice(0, end))).cStr());
    script = script.slice(kj::min(end + 1, script.size()));
  }
}

int print(Context& context, rpc::Profile::Reader profile) {
  if (context.json()) {
    JsonWriter json;
    writeJson(json, profile);
    context.print(json);
    return 0;
  }
  std::printf("profile      %s\nname         %s\nexecutor     %s\nversion      %llu\n",
              profile.getId().cStr(), plain(profile.getName()).cStr(),
              profile.getExecutorId().cStr(),
              static_cast<unsigned long long>(profile.getVersion()));
  std::printf("changed      %s\n", timeText(profile.getUpdatedAt()).cStr());
  if (profile.getMcpPolicy().size() > 0) {
    std::printf("mcp policy   %s\n", plain(profile.getMcpPolicy()).cStr());
  }
  for (auto pair: profile.getConfig()) {
    std::printf("config       %s=%s\n", plain(pair.getKey()).cStr(), plain(pair.getValue()).cStr());
  }
  for (auto variable: profile.getVariables()) {
    if (variable.isSecret()) {
      std::printf("variable     %s=secret:%s\n", plain(variable.getKey()).cStr(),
                  plain(variable.getSecret()).cStr());
    } else {
      std::printf("variable     %s=%s\n", plain(variable.getKey()).cStr(),
                  plain(variable.getLiteral()).cStr());
    }
  }
  printScript("prepare script", profile.getPrepareScript());
  printScript("cleanup script", profile.getCleanupScript());
  return 0;
}

// What the command line says about a profile's variables.
struct Definition {
  kj::String key;
  kj::String literal;
  kj::String secret;
};

kj::Vector<Definition> readDefinitions(Context& context) {
  kj::Vector<Definition> definitions;
  for (auto& word: context.arguments.all("--env")) {
    auto equals = word.findFirst('=').orDefault(0);
    if (equals == 0) failUsage(kj::str("--env wants NAME=VALUE, not '", word, "'"));
    Definition definition;
    definition.key = kj::str(word.slice(0, equals));
    auto value = word.slice(equals + 1);
    (value.startsWith("secret:") ? definition.secret : definition.literal) =
        kj::str(value.startsWith("secret:") ? value.slice(strlen("secret:")) : value);
    for (auto& earlier: definitions) {
      if (earlier.key == definition.key) failUsage(kj::str("--env ", word, " is given twice"));
    }
    definitions.add(kj::mv(definition));
  }
  return definitions;
}

// The definitions in the place of those with the same key; an empty value takes one away.
void mergeVariables(capnp::List<rpc::Variable>::Reader present,
                    kj::ArrayPtr<const Definition> definitions, rpc::Profile::Builder row) {
  kj::Vector<rpc::Variable::Reader> kept;
  for (auto variable: present) {
    bool replaced = false;
    for (auto& definition: definitions)
      replaced = replaced || definition.key == variable.getKey();
    if (!replaced) kept.add(variable);
  }
  kj::Vector<const Definition*> added;
  for (auto& definition: definitions) {
    if (definition.literal.size() + definition.secret.size() > 0) added.add(&definition);
  }
  auto out = row.initVariables(kept.size() + added.size());
  for (auto i: kj::indices(kept))
    out.setWithCaveats(i, kept[i]);
  for (auto i: kj::indices(added)) {
    auto variable = out[kept.size() + i];
    variable.setKey(added[i]->key);
    variable.setOrigin(rpc::Origin::EXECUTOR_PROFILE);
    if (added[i]->secret.size() > 0) {
      variable.setSecret(added[i]->secret);
    } else {
      variable.setLiteral(added[i]->literal);
    }
  }
}

// The texts of --prepare-script and --cleanup-script; null = not given, empty = cleared.
struct Scripts {
  kj::Maybe<kj::String> prepare;
  kj::Maybe<kj::String> cleanup;

  void fill(rpc::Profile::Builder row) const {
    KJ_IF_MAYBE (text, prepare) {
      row.setPrepareScript(*text);
    }
    KJ_IF_MAYBE (text, cleanup) {
      row.setCleanupScript(*text);
    }
  }
};

Scripts readScripts(Context& context) {
  Scripts scripts;
  auto read = [](kj::StringPtr path) {
    return kj::heapString(readInput(path, MOST_SCRIPT).asChars());
  };
  auto prepare = context.arguments.get("--prepare-script");
  auto cleanup = context.arguments.get("--cleanup-script");
  if (prepare.orDefault("") == "-" && cleanup.orDefault("") == "-") {
    failUsage(kj::str("standard input can be one script only"));
  }
  KJ_IF_MAYBE (path, prepare) {
    scripts.prepare = read(*path);
  }
  KJ_IF_MAYBE (path, cleanup) {
    scripts.cleanup = read(*path);
  }
  return scripts;
}

}  // namespace

int runProfileList(Context& context) {
  context.noMoreWords(0);
  kj::Vector<capnp::Response<ProfileTable::ListResults>> pages;
  kj::String after;
  do {
    auto request = profiles(context).listRequest();
    request.setAfter(after);
    pages.add(ask<ProfileTable::ListResults>(context, kj::mv(request)));
    after = kj::str(pages.back().getNext());
  } while (after.size() > 0);
  if (context.json()) {
    JsonWriter json;
    json.beginObject().key("profiles").beginArray();
    for (auto& page: pages) {
      for (auto row: page.getRows())
        writeJson(json, row.getValue());
    }
    json.endArray().endObject();
    context.print(json);
    return 0;
  }
  Table table({"PROFILE", "NAME", "EXECUTOR", "VERSION"});
  for (auto& page: pages) {
    for (auto row: page.getRows()) {
      auto profile = row.getValue();
      kj::Vector<kj::String> cells;
      cells.add(kj::str(profile.getId()));
      cells.add(kj::str(profile.getName()));
      cells.add(kj::str(profile.getExecutorId()));
      cells.add(kj::str(profile.getVersion()));
      table.row(kj::mv(cells));
    }
  }
  std::printf("%s", table.finish().cStr());
  return 0;
}

int runProfileShow(Context& context) {
  auto name = context.word(0, "P");
  context.noMoreWords(1);
  return print(context, getProfile(context, name).getRow());
}

int runProfileAdd(Context& context) {
  auto executor = context.word(0, "E");
  auto name = context.word(1, "NAME");
  auto settings = readSettings(context, 2);
  auto definitions = readDefinitions(context);
  auto scripts = readScripts(context);
  auto request = profiles(context).putRequest();
  auto row = request.initRow();
  row.setExecutorId(getExecutor(context, executor).getRow().getId());
  row.setName(name);
  KJ_IF_MAYBE (policy, context.arguments.get("--mcp-policy")) {
    row.setMcpPolicy(*policy);
  }
  scripts.fill(row);
  mergeConfig({}, settings, [row](uint32_t size) mutable { return row.initConfig(size); });
  mergeVariables({}, definitions, row);
  auto response = ask<ProfileTable::PutResults>(context, kj::mv(request));
  check(response.getError());
  return print(context, response.getRow());
}

int runProfileUpdate(Context& context) {
  auto name = context.word(0, "P");
  auto settings = readSettings(context, 1);
  auto definitions = readDefinitions(context);
  auto scripts = readScripts(context);
  auto& arguments = context.arguments;
  auto asked = versionOption(context);
  bool merges = settings.size() > 0 || definitions.size() > 0;
  if (!merges && scripts.prepare == nullptr && scripts.cleanup == nullptr &&
      !arguments.has("--name") && !arguments.has("--mcp-policy")) {
    failUsage(kj::str("nothing to change: give key=value or an option (--help shows them)"));
  }
  for (int tries = 1;; ++tries) {
    auto found = getProfile(context, name);
    auto present = found.getRow();
    auto request = profiles(context).putRequest();
    request.setId(present.getId());
    request.setIfVersion(asked.orDefault(merges ? found.getVersion() : rpc::ANY_VERSION));
    auto row = request.initRow();
    KJ_IF_MAYBE (next, arguments.get("--name")) {
      row.setName(*next);
    }
    KJ_IF_MAYBE (policy, arguments.get("--mcp-policy")) {
      row.setMcpPolicy(*policy);
    }
    scripts.fill(row);
    if (settings.size() > 0) {
      mergeConfig(present.getConfig(), settings,
                  [row](uint32_t size) mutable { return row.initConfig(size); });
    }
    if (definitions.size() > 0) mergeVariables(present.getVariables(), definitions, row);
    auto response = ask<ProfileTable::PutResults>(context, kj::mv(request));
    if (isOvertaken(response.getError()) && asked == nullptr && tries < MOST_TRIES) continue;
    check(response.getError());
    return print(context, response.getRow());
  }
}

int runProfileRemove(Context& context) {
  auto name = context.word(0, "P");
  context.noMoreWords(1);
  auto id = kj::str(getProfile(context, name).getRow().getId());
  auto request = profiles(context).removeRequest();
  request.setId(id);
  request.setIfVersion(versionOption(context).orDefault(rpc::ANY_VERSION));
  check(ask<ProfileTable::RemoveResults>(context, kj::mv(request)).getError());
  if (context.json()) {
    JsonWriter json;
    json.beginObject().member("id", id).endObject();
    context.print(json);
  }
  return 0;
}

}  // namespace capstan::cli
