// Commands about secrets.
#include "client/launch.h"
#include "tools/capstan/catalog-views.h"
#include "tools/capstan/commands.h"
#include "tools/capstan/views.h"

#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace capstan::cli {

namespace {

// What one message to the daemon holds beside its own words.
constexpr size_t MOST_VALUE = (1u << 20) - 4096;

// Who may use a secret: one of the two is empty.
struct Target {
  kj::String environmentId;
  kj::String profileId;
};

// Null when there is none by that name; other failures, such as an ambiguous name, end the command.
kj::Maybe<kj::String> findEnvironment(Context& context, kj::StringPtr name) {
  auto request = context.supervisor().openRequest();
  request.setId(name);
  auto opened = ask<rpc::Supervisor::OpenResults>(context, kj::mv(request));
  if (opened.getError().getCode() == ErrorCode::NOT_FOUND) return nullptr;
  check(opened.getError());
  auto status =
      ask<rpc::TaskEnvironment::StatusResults>(context, opened.getEnvironment().statusRequest());
  return kj::str(status.getStatus().getId());
}

kj::Maybe<kj::String> findProfile(Context& context, kj::StringPtr name) {
  auto table = context.admin().profilesRequest().send().getTable();
  auto request = table.getRequest();
  request.setId(name);
  auto found = ask<rpc::Table<rpc::Profile>::GetResults>(context, kj::mv(request));
  if (found.getError().getCode() == ErrorCode::NOT_FOUND) return nullptr;
  check(found.getError());
  return kj::str(found.getRow().getId());
}

Target findTarget(Context& context, kj::StringPtr name) {
  auto environment = findEnvironment(context, name);
  auto profile = findProfile(context, name);
  KJ_IF_MAYBE (environmentId, environment) {
    KJ_IF_MAYBE (profileId, profile) {
      fail(Problem(ErrorCode::INVALID_ARGUMENT,
                   kj::str("'", name, "' stands for an environment and for a profile"))
               .advise(kj::str("one of ", *environmentId, ", ", *profileId)));
    }
    return Target{kj::mv(*environmentId), kj::String()};
  }
  KJ_IF_MAYBE (profileId, profile) {
    return Target{kj::String(), kj::mv(*profileId)};
  }
  fail(Problem(ErrorCode::NOT_FOUND, kj::str("no environment and no profile '", name, "'"))
           .advise(kj::str("capstan env list and capstan profile list show them")));
}

template <typename Results, typename Request>
int decide(Context& context, Request request) {
  auto name = context.word(0, "NAME");
  auto word = context.word(1, "ENV or PROFILE");
  context.noMoreWords(2);
  auto target = findTarget(context, word);
  request.setName(name);
  request.setEnvironmentId(target.environmentId);
  request.setProfileId(target.profileId);
  check(ask<Results>(context, kj::mv(request)).getError());
  if (context.json()) {
    JsonWriter json;
    json.beginObject()
        .member("name", name)
        .member("environmentId", target.environmentId)
        .member("profileId", target.profileId)
        .endObject();
    context.print(json);
  }
  return 0;
}

}  // namespace

int runSecretSet(Context& context) {
  auto name = context.word(0, "NAME");
  context.noMoreWords(1);
  if (isatty(STDIN_FILENO)) {
    fail(Problem(ErrorCode::INVALID_ARGUMENT,
                 kj::str("the value is read from standard input, which is a terminal"))
             .because(kj::str("what is typed there would be seen"))
             .advise(kj::str("capstan secret set ", name, " < FILE, or through a pipe")),
         USAGE);
  }
  auto value = readInput("-", MOST_VALUE);
  auto kept = value.asPtr();
  if (!context.arguments.has("--exact") && kept.size() > 0 && kept.back() == '\n') {
    kept = kept.slice(0, kept.size() - 1);
  }
  KJ_DEFER(explicit_bzero(value.begin(), value.size()));
  if (kept.size() == 0) {
    fail(Problem(ErrorCode::INVALID_ARGUMENT, kj::str("the secret's value is empty"))
             .advise(kj::str("give it on standard input")),
         USAGE);
  }
  auto request = context.admin().setSecretRequest();
  request.setName(name);
  request.setValue(kept);
  auto response = ask<rpc::Admin::SetSecretResults>(context, kj::mv(request));
  check(response.getError());
  if (context.json()) {
    JsonWriter json;
    json.beginObject().member("name", name).member("made", response.getMade()).endObject();
    context.print(json);
  }
  return 0;
}

int runSecretList(Context& context) {
  context.noMoreWords(0);
  JsonWriter json;
  json.beginObject().key("secrets").beginArray();
  Table table({"SECRET", "CHANGED", "ALLOWED FOR"});
  kj::String after;
  do {
    auto request = context.admin().secretsRequest();
    request.setAfter(after);
    auto response = ask<rpc::Admin::SecretsResults>(context, kj::mv(request));
    check(response.getError());
    for (auto secret: response.getSecrets()) {
      json.beginObject()
          .member("name", kj::StringPtr(secret.getName()))
          .member("createdAt", secret.getCreatedAt())
          .member("updatedAt", secret.getUpdatedAt());
      kj::Vector<kj::String> allowed;
      json.key("environmentIds").beginArray();
      for (auto id: secret.getEnvironmentIds()) {
        json.value(kj::StringPtr(id));
        allowed.add(kj::str(id));
      }
      json.endArray().key("profileIds").beginArray();
      for (auto id: secret.getProfileIds()) {
        json.value(kj::StringPtr(id));
        allowed.add(kj::str(id));
      }
      json.endArray().endObject();
      kj::Vector<kj::String> cells;
      cells.add(kj::str(secret.getName()));
      cells.add(timeText(secret.getUpdatedAt()));
      cells.add(kj::strArray(allowed, " "));
      table.row(kj::mv(cells));
    }
    after = kj::str(response.getNext());
  } while (after.size() > 0);
  json.endArray().endObject();
  if (context.json()) {
    context.print(json);
  } else {
    std::printf("%s", table.finish().cStr());
  }
  return 0;
}

int runSecretAllow(Context& context) {
  return decide<rpc::Admin::AllowSecretResults>(context, context.admin().allowSecretRequest());
}

int runSecretDisallow(Context& context) {
  return decide<rpc::Admin::DisallowSecretResults>(context,
                                                   context.admin().disallowSecretRequest());
}

int runSecretRotate(Context& context) {
  context.noMoreWords(0);
  auto response =
      ask<rpc::Admin::RotateSecretKeyResults>(context, context.admin().rotateSecretKeyRequest());
  check(response.getError());
  if (context.json()) {
    JsonWriter json;
    json.beginObject().member("resealed", response.getResealed()).endObject();
    context.print(json);
  }
  return 0;
}

int runSecretRemove(Context& context) {
  auto name = context.word(0, "NAME");
  context.noMoreWords(1);
  auto request = context.admin().removeSecretRequest();
  request.setName(name);
  check(ask<rpc::Admin::RemoveSecretResults>(context, kj::mv(request)).getError());
  if (context.json()) {
    JsonWriter json;
    json.beginObject().member("name", name).endObject();
    context.print(json);
  }
  return 0;
}

}  // namespace capstan::cli
