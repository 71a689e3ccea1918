#include "tools/capstan/catalog-views.h"

#include "client/launch.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace capstan::cli {

kj::Vector<Setting> readSettings(Context& context, size_t from) {
  kj::Vector<Setting> settings;
  for (auto& word: context.arguments.words().slice(from, context.arguments.words().size())) {
    auto equals = word.findFirst('=').orDefault(0);
    if (equals == 0) failUsage(kj::str("expected key=value, not '", word, "'"));
    Setting setting{kj::str(word.slice(0, equals)), kj::str(word.slice(equals + 1))};
    for (auto& earlier: settings) {
      if (earlier.key == setting.key) failUsage(kj::str(setting.key, " is given twice"));
    }
    settings.add(kj::mv(setting));
  }
  return settings;
}

void mergeConfig(capnp::List<rpc::KeyValue>::Reader present, kj::ArrayPtr<const Setting> settings,
                 kj::Function<capnp::List<rpc::KeyValue>::Builder(uint32_t)> init) {
  kj::Vector<Setting> merged;
  for (auto pair: present) {
    bool replaced = false;
    for (auto& setting: settings)
      replaced = replaced || setting.key == pair.getKey();
    if (!replaced) merged.add(Setting{kj::str(pair.getKey()), kj::str(pair.getValue())});
  }
  for (auto& setting: settings) {
    if (setting.value.size() > 0) {
      merged.add(Setting{kj::str(setting.key), kj::str(setting.value)});
    }
  }
  auto out = init(merged.size());
  for (auto i: kj::indices(merged)) {
    out[i].setKey(merged[i].key);
    out[i].setValue(merged[i].value);
  }
}

kj::Array<kj::byte> readInput(kj::StringPtr path, size_t most) {
  auto refuse = [&](kj::String cause) {
    fail(Problem(ErrorCode::INVALID_ARGUMENT,
                 kj::str("cannot read ", path == "-" ? "standard input"_kj : path))
             .because(kj::mv(cause)),
         USAGE);
  };
  kj::AutoCloseFd own;
  int fd = STDIN_FILENO;
  if (path != "-") {
    fd = open(path.cStr(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) refuse(kj::str(strerror(errno)));
    own = kj::AutoCloseFd(fd);
  }
  // Never grown: what is read may be a secret, and no copy of it is to be left behind.
  auto buffer = kj::heapArray<kj::byte>(most + 1);
  size_t size = 0;
  while (size < buffer.size()) {
    ssize_t n = read(fd, buffer.begin() + size, buffer.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse(kj::str(strerror(errno)));
    if (n == 0) break;
    size += n;
  }
  bool tooMuch = size > most;
  auto result = kj::heapArray<kj::byte>(buffer.slice(0, tooMuch ? 0 : size));
  explicit_bzero(buffer.begin(), buffer.size());
  if (tooMuch) refuse(kj::str("it has more than ", most, " bytes"));
  return result;
}

kj::Maybe<uint64_t> versionOption(Context& context) {
  KJ_IF_MAYBE (text, context.arguments.get("--if-version")) {
    char* end;
    errno = 0;
    auto version = std::strtoull(text->cStr(), &end, 10);
    if (text->size() == 0 || *end != 0 || errno != 0 || (*text)[0] == '-' || version == 0 ||
        version >= rpc::ANY_VERSION) {
      failUsage(kj::str("--if-version wants a version, not '", *text, "'"));
    }
    return uint64_t(version);
  }
  return nullptr;
}

bool isOvertaken(rpc::Error::Reader error) {
  return error.getCode() == ErrorCode::WRONG_STATE &&
         error.getRetry() == rpc::RetryHint::AFTER_REFRESH;
}

namespace {

void writeConfig(JsonWriter& json, capnp::List<rpc::KeyValue>::Reader config) {
  json.key("config").beginObject();
  for (auto pair: config)
    json.member(kj::StringPtr(pair.getKey()), kj::StringPtr(pair.getValue()));
  json.endObject();
}

}  // namespace

void writeJson(JsonWriter& json, rpc::Executor::Reader executor) {
  json.beginObject()
      .member("id", kj::StringPtr(executor.getId()))
      .member("name", kj::StringPtr(executor.getName()))
      .member("type", kj::StringPtr(executor.getType()))
      .member("status", kj::StringPtr(executor.getStatus()))
      .member("isSystem", executor.getIsSystem())
      .member("resumable", executor.getResumable())
      .member("version", executor.getVersion())
      .member("createdAt", executor.getCreatedAt())
      .member("updatedAt", executor.getUpdatedAt());
  writeConfig(json, executor.getConfig());
  json.endObject();
}

void writeJson(JsonWriter& json, rpc::Profile::Reader profile) {
  json.beginObject()
      .member("id", kj::StringPtr(profile.getId()))
      .member("executorId", kj::StringPtr(profile.getExecutorId()))
      .member("name", kj::StringPtr(profile.getName()))
      .member("mcpPolicy", kj::StringPtr(profile.getMcpPolicy()))
      .member("version", profile.getVersion())
      .member("createdAt", profile.getCreatedAt())
      .member("updatedAt", profile.getUpdatedAt())
      .member("prepareScript", kj::StringPtr(profile.getPrepareScript()))
      .member("cleanupScript", kj::StringPtr(profile.getCleanupScript()));
  writeConfig(json, profile.getConfig());
  json.key("variables").beginArray();
  for (auto variable: profile.getVariables()) {
    json.beginObject().member("key", kj::StringPtr(variable.getKey()));
    if (variable.isSecret()) {
      json.member("secret", kj::StringPtr(variable.getSecret()));
    } else {
      json.member("literal", kj::StringPtr(variable.getLiteral()));
    }
    json.endObject();
  }
  json.endArray().endObject();
}

capnp::Response<rpc::Table<rpc::Executor>::GetResults> getExecutor(Context& context,
                                                                   kj::StringPtr name) {
  auto table = context.admin().executorsRequest().send().getTable();
  auto request = table.getRequest();
  request.setId(name);
  auto response = ask<rpc::Table<rpc::Executor>::GetResults>(context, kj::mv(request));
  check(response.getError());
  return response;
}

capnp::Response<rpc::Table<rpc::Profile>::GetResults> getProfile(Context& context,
                                                                 kj::StringPtr name) {
  auto table = context.admin().profilesRequest().send().getTable();
  auto request = table.getRequest();
  request.setId(name);
  auto response = ask<rpc::Table<rpc::Profile>::GetResults>(context, kj::mv(request));
  check(response.getError());
  return response;
}

}  // namespace capstan::cli
