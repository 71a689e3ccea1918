#pragma once
// What the tests of resumed sessions share.

#include "rpc/records-fixture.h"

namespace capstan::test {

inline LaunchSpec again() { return LaunchSpec(); }

inline LaunchSpec asked(char id) {
  LaunchSpec spec;
  spec.requestId = requestId(id);
  return spec;
}

inline kj::Own<RunActor> resumed(Daemon& daemon, EnvironmentActor& environment,
                                 SessionActor& session, LaunchSpec spec = again()) {
  auto result = daemon.wait(environment.resume(kj::addRef(session), kj::mv(spec)));
  if (result.is<Problem>()) FAIL(kj::str(result.get<Problem>()).cStr());
  return kj::mv(result.get<kj::Own<RunActor>>());
}

inline Problem notResumed(Daemon& daemon, EnvironmentActor& environment, SessionActor& session,
                          LaunchSpec spec = again()) {
  auto result = daemon.wait(environment.resume(kj::addRef(session), kj::mv(spec)));
  if (!result.is<Problem>()) FAIL("it was resumed");
  return kj::mv(result.get<Problem>());
}

inline kj::Own<EnvironmentActor> onDocker(Daemon& daemon) {
  auto spec = task("t");
  spec.executor = kj::str("exec-local-docker");
  auto ensured = daemon.wait(daemon.core().ensure(kj::str(OWNER), kj::mv(spec)));
  return kj::mv(ensured.get<Supervisor::Ensured>().environment);
}

}  // namespace capstan::test
