#include "tools/capstan/context.h"

#include "client/paths.h"

#include <cstdio>
#include <unistd.h>

namespace capstan::cli {

void fail(Problem problem, int code) { throw Failure{kj::mv(problem), code}; }

void failUsage(kj::String message) {
  throw Failure{Problem(ErrorCode::INVALID_ARGUMENT, kj::mv(message))
                    .advise(kj::str("capstan --help shows the commands")),
                USAGE};
}

void check(rpc::Error::Reader error) {
  KJ_IF_MAYBE (problem, readProblem(error)) {
    fail(kj::mv(*problem));
  }
}

Failure failureOf(const kj::Exception& exception) {
  auto problem = asProblem(exception);
  if (exception.getType() == kj::Exception::Type::DISCONNECTED) {
    problem.message = kj::str("the connection to the daemon is lost");
    problem.cause = kj::str(exception.getDescription());
    problem.hint = kj::str("what runs goes on if the daemon lives: capstan session list");
  }
  return Failure{kj::mv(problem), CAPSTAN_FAILED};
}

Context::Context(kj::AsyncIoContext& io, const Arguments& arguments, kj::String executable)
    : io(io), arguments(arguments), executable(kj::mv(executable)) {}

ClientConnection& Context::daemon() {
  KJ_IF_MAYBE (present, connection) {
    return **present;
  }
  GetVariable get = processVariable;
  AutoStart options;
  options.socket = defaultSocket(get, geteuid());
  KJ_IF_MAYBE (socket, arguments.get("--socket")) {
    options.socket = kj::str(*socket);
  }
  auto slash = KJ_REQUIRE_NONNULL(executable.findLast('/'), "no folder in the program's path");
  options.daemon = kj::str(executable.slice(0, slash), "/capstand");
  KJ_IF_MAYBE (directory, arguments.get("--state-dir")) {
    options.stateDirectory = kj::str(*directory);
  }
  auto connected = wait(connectOrStart(io, kj::mv(options)));
  if (connected.is<Problem>()) fail(kj::mv(connected.get<Problem>()));
  auto& made = connection.emplace(kj::mv(connected.get<kj::Own<ClientConnection>>()));
  // A daemon that does not let us in says why here, once, instead of at every later call.
  auto request = made->bootstrap().authenticateRequest();
  request.initCredential().setPeer();
  auto answer = wait(request.send().then(
      [](capnp::Response<rpc::Bootstrap::AuthenticateResults>&& response) -> kj::Maybe<Problem> {
        return readProblem(response.getError());
      }));
  KJ_IF_MAYBE (problem, answer) {
    fail(kj::mv(*problem));
  }
  return *made;
}

rpc::TaskEnvironment::Client Context::environment(kj::StringPtr name) {
  auto request = supervisor().openRequest();
  request.setId(name);
  auto response = wait(request.send().then(
      [](capnp::Response<rpc::Supervisor::OpenResults>&& r) { return kj::mv(r); }));
  check(response.getError());
  return response.getEnvironment();
}

kj::StringPtr Context::word(size_t index, kj::StringPtr name) const {
  if (index >= arguments.words().size()) failUsage(kj::str(name, " is missing"));
  return arguments.words()[index];
}

void Context::noMoreWords(size_t count) const {
  if (arguments.words().size() > count) {
    failUsage(kj::str("unexpected word '", arguments.words()[count], "'"));
  }
}

void Context::print(JsonWriter& writer) {
  auto text = writer.finish();
  std::printf("%s\n", text.cStr());
}

}  // namespace capstan::cli
