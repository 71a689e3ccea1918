// Environments through their capabilities: what a client sees of the first slice.
#include "rpc/environment-cap.h"
#include "support/daemon.h"

#include <sys/stat.h>
#include <unistd.h>

namespace capstan::test {

namespace {

rpc::TaskEnvironment::Client ensure(Daemon& daemon, ClientConnection& client, kj::StringPtr task) {
  auto request = client.supervisor().ensureRequest();
  request.initSpec().setTaskId(task);
  auto response = daemon.wait(request.send());
  REQUIRE(response.getError().getCode() == ErrorCode::NONE);
  return response.getEnvironment();
}

kj::String idOf(Daemon& daemon, rpc::TaskEnvironment::Client environment) {
  return kj::str(daemon.wait(environment.statusRequest().send()).getStatus().getId());
}

bool exists(kj::StringPtr path) { return access(path.cStr(), F_OK) == 0; }

}  // namespace

TEST_CASE("a task has one environment, however often it is ensured") {
  Daemon daemon;
  auto client = daemon.connect();

  auto first = client->supervisor().ensureRequest();
  first.initSpec().setTaskId("t-1");
  auto made = daemon.wait(first.send());
  auto second = client->supervisor().ensureRequest();
  second.initSpec().setTaskId("t-1");
  auto again = daemon.wait(second.send());

  CHECK(made.getMade());
  CHECK_FALSE(again.getMade());
  CHECK(kj::str(made.getId()) == kj::str(again.getId()));
  CHECK(kj::str(made.getId()).startsWith("env-"));
}

TEST_CASE("a differing executor or workspace names both and the cures") {
  Daemon daemon;
  auto client = daemon.connect();
  auto environment = ensure(daemon, *client, "t-1");

  auto request = client->supervisor().ensureRequest();
  request.initSpec().setTaskId("t-1");
  request.getSpec().setExecutorId("exec-local-docker");
  auto response = daemon.wait(request.send());
  CHECK(response.getError().getCode() == ErrorCode::EXECUTOR_MISMATCH);
  CHECK(kj::str(response.getError().getMessage()) ==
        "the task's environment uses executor exec-local-pc, not exec-local-docker");

  auto other = client->supervisor().ensureRequest();
  other.initSpec().setTaskId("t-1");
  other.getSpec().initWorkspace().setDirectory("/tmp");
  auto refused = daemon.wait(other.send());
  CHECK(refused.getError().getCode() == ErrorCode::WRONG_STATE);
  CHECK(kj::str(refused.getError().getField()) == "spec.workspace");
}

TEST_CASE("an executor whose runtime is not there is refused before anything is made") {
  Daemon daemon;
  auto client = daemon.connect();
  auto request = client->supervisor().ensureRequest();
  request.initSpec().setTaskId("t-1");
  request.getSpec().setExecutorId("Local Docker");

  auto response = daemon.wait(request.send());

  auto error = response.getError();
  CHECK(error.getCode() == ErrorCode::RUNTIME_UNAVAILABLE);
  CHECK(kj::str(error.getMessage()) ==
        "runtime \"docker\" not available for executor type \"local_docker\"");
  CHECK(kj::str(error.getHint()) ==
        "Runtime 'docker' is not available. Enable it in "
        "configuration or change the task's executor.");
  CHECK(daemon.wait(client->supervisor().listRequest().send()).getPage().size() == 0);
}

TEST_CASE("parts of a request that are not carried out are refused by field") {
  Daemon daemon;
  auto client = daemon.connect();
  auto request = client->supervisor().ensureRequest();
  request.initSpec().setTaskId("t-1");
  request.getSpec().initWorkspace().initRepositories(1)[0].setUrl("ext::sh -c true");
  auto response = daemon.wait(request.send());
  CHECK(response.getError().getCode() == ErrorCode::INVALID_ARGUMENT);
  CHECK(kj::str(response.getError().getField()) == "spec.workspace.repositories[0].url");

  request = client->supervisor().ensureRequest();
  request.initSpec().setTaskId("t-1");
  request.getSpec().initWorkspace().setReuseRequired(true);
  response = daemon.wait(request.send());
  CHECK(response.getError().getCode() == ErrorCode::WORKSPACE_LOST);
  CHECK(kj::str(response.getError().getField()) == "spec.workspace.reuseRequired");

  auto environment = ensure(daemon, *client, "t-2");
  auto launch = environment.launchRequest();
  setCommand(launch.initSpec(), {"true"});
  launch.getSpec().initAgent().setProtocol("acp");
  CHECK(kj::str(daemon.wait(launch.send()).getError().getField()) == "spec.agent");
}

TEST_CASE("a failed ensure breaks what was pipelined on it, readably") {
  Daemon daemon;
  auto client = daemon.connect();
  auto request = client->supervisor().ensureRequest();
  request.initSpec().setTaskId("not a task id");

  auto ensured = request.send();
  auto status = ensured.getEnvironment().statusRequest().send();

  CHECK(kj::str(daemon.wait(kj::mv(ensured)).getError().getField()) == "spec.taskId");
  try {
    daemon.wait(kj::mv(status));
    FAIL("the call on a failed environment succeeded");
  } catch (const kj::Exception& e) {
    CHECK(std::string(e.getDescription().cStr()).find("is no task id") != std::string::npos);
  }
}

TEST_CASE("only the daemon's own user and root come in by peer credentials") {
  Daemon daemon;
  auto ask = [&](Peer peer) {
    auto client = daemon.connect(peer);
    auto request = client->bootstrap().authenticateRequest();
    request.initCredential().setPeer();
    return daemon.wait(request.send()).getError().getCode();
  };
  Peer own;
  own.uid = geteuid();
  Peer stranger;
  stranger.uid = geteuid() + 4711;
  CHECK(ask(own) == ErrorCode::NONE);
  CHECK(ask(stranger) == ErrorCode::UNAUTHENTICATED);
  CHECK(ask(Peer()) == ErrorCode::UNAUTHENTICATED);

  auto client = daemon.connect(own);
  auto request = client->bootstrap().authenticateRequest();
  request.initCredential().setToken("0123456789abcdef0123456789abcdef"_kj.asBytes());
  auto refused = daemon.wait(request.send());
  CHECK(refused.getError().getCode() == ErrorCode::UNAUTHENTICATED);
}

TEST_CASE("an environment is found by id, task and unambiguous prefix") {
  Daemon daemon;
  auto client = daemon.connect();
  auto environment = ensure(daemon, *client, "alpha-1");
  ensure(daemon, *client, "alpha-2");
  auto id = idOf(daemon, environment);
  auto code = [&](kj::StringPtr name) {
    auto request = client->supervisor().openRequest();
    request.setId(name);
    return daemon.wait(request.send()).getError().getCode();
  };
  CHECK(code(id) == ErrorCode::NONE);
  CHECK(code(kj::str(id.slice(0, 10))) == ErrorCode::NONE);
  CHECK(code("alpha-1") == ErrorCode::NONE);
  CHECK(code("alpha") == ErrorCode::INVALID_ARGUMENT);
  CHECK(code("beta") == ErrorCode::NOT_FOUND);
  CHECK(code("") == ErrorCode::NOT_FOUND);
}

TEST_CASE("a reference without a right is told which one it lacks") {
  Daemon daemon;
  auto client = daemon.connect();
  auto id = idOf(daemon, ensure(daemon, *client, "t-1"));
  auto meter = kj::refcounted<CallMeter>(RpcLimits());
  auto found = daemon.core().findById(id);
  auto facet =
      newEnvironmentCap(daemon.core(), kj::mv(found.get<kj::Own<EnvironmentActor>>()),
                        Guard(kj::mv(meter), Rights{static_cast<uint8_t>(Right::OBSERVE)}));

  CHECK(daemon.wait(facet.statusRequest().send()).getStatus().getTaskId() == "t-1");
  auto launch = facet.launchRequest();
  setCommand(launch.initSpec(), {"true"});
  auto refused = daemon.wait(launch.send());
  CHECK(refused.getError().getCode() == ErrorCode::DENIED);
  CHECK(kj::str(refused.getError().getCause()) == "it lacks the right 'launch'");
  CHECK(daemon.wait(facet.stopRequest().send()).getError().getCode() == ErrorCode::DENIED);
  CHECK(daemon.wait(facet.cleanupRequest().send()).getError().getCode() == ErrorCode::DENIED);
  auto full = ensure(daemon, *client, "t-1").launchRequest();
  setCommand(full.initSpec(), {"true"});
  daemon.wait(full.send());
  auto open = facet.sessionRequest();
  open.setId("s-");
  auto run = daemon.wait(open.send()).getSession().runRequest().send().getRun();
  CHECK(daemon.wait(run.outputRequest().send()).getError().getCode() == ErrorCode::NONE);
  auto hold = run.outputRequest();
  hold.setHold(true);
  CHECK(daemon.wait(hold.send()).getError().getCode() == ErrorCode::DENIED);
  CHECK(daemon.wait(run.stdinRequest().send()).getError().getCode() == ErrorCode::DENIED);

  auto answer = daemon.wait(facet.rightsRequest().send());
  auto rights = answer.getRights();
  CHECK(rights.getObserve());
  CHECK_FALSE(rights.getLaunch());
}

TEST_CASE("stop keeps files, destroy removes ours and leaves the user's in place") {
  Daemon daemon;
  auto client = daemon.connect();
  auto own = ensure(daemon, *client, "own");
  auto ownId = idOf(daemon, own);
  auto launch = own.launchRequest();
  setCommand(launch.initSpec(), {"sh", "-c", "echo data > file; sleep 1000"});
  auto session = daemon.wait(launch.send());
  REQUIRE(session.getError().getCode() == ErrorCode::NONE);
  auto file = kj::str(daemon.environmentFolder(ownId), "/workspace/file");
  REQUIRE(daemon.becomesTrue([&]() { return exists(file); }));

  auto stop = own.stopRequest();
  stop.setForce(true);
  CHECK(daemon.wait(stop.send()).getError().getCode() == ErrorCode::NONE);
  CHECK(exists(file));
  auto stopped = daemon.wait(own.statusRequest().send());
  CHECK(stopped.getStatus().getState() == rpc::EnvironmentState::STOPPED);
  CHECK(stopped.getStatus().getSessions()[0].getState() == rpc::SessionState::STOPPED);

  // A stopped environment is used again by the next launch.
  auto again = own.launchRequest();
  setCommand(again.initSpec(), {"cat", "file"});
  CHECK(daemon.wait(again.send()).getError().getCode() == ErrorCode::NONE);

  auto destroy = own.cleanupRequest();
  destroy.setScope(rpc::TaskEnvironment::CleanupScope::ALL);
  auto destroyed = daemon.wait(destroy.send());
  CHECK(destroyed.getError().getCode() == ErrorCode::NONE);
  CHECK(destroyed.getLeftovers().size() == 0);
  CHECK_FALSE(exists(daemon.environmentFolder(ownId)));
  CHECK(daemon.wait(client->supervisor().listRequest().send()).getPage().size() == 0);

  TempDir mine;
  auto request = client->supervisor().ensureRequest();
  request.initSpec().setTaskId("mine");
  request.getSpec().initWorkspace().setDirectory(mine.path());
  auto given = daemon.wait(request.send()).getEnvironment();
  auto write = given.launchRequest();
  setCommand(write.initSpec(), {"touch", "kept"});
  auto run = daemon.wait(write.send()).getRun();
  daemon.wait(run.waitRequest().send());
  auto remove = given.cleanupRequest();
  remove.setScope(rpc::TaskEnvironment::CleanupScope::ALL);
  auto left = daemon.wait(remove.send());
  REQUIRE(left.getLeftovers().size() == 1);
  CHECK(kj::str(left.getLeftovers()[0]) == kj::str("left in place: ", mine.path()));
  CHECK(exists(mine / "kept"));
}

TEST_CASE("runtimes: what is built in is checked, what is not says so") {
  Daemon daemon;
  auto client = daemon.connect();
  auto rows = daemon.wait(client->supervisor().runtimesRequest().send());
  REQUIRE(rows.getRuntimes().size() == 5);
  CHECK(kj::str(rows.getRuntimes()[0].getRuntime()) == "standalone");
  CHECK(rows.getRuntimes()[0].getHealthy());
  CHECK(rows.getRuntimes()[0].getCheckedAt() > 0);
  CHECK_FALSE(rows.getRuntimes()[1].getBuiltIn());
  CHECK(rows.getRuntimes()[1].getReason().getCode() == ErrorCode::RUNTIME_UNAVAILABLE);
}

}  // namespace capstan::test
