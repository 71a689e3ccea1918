// Processes through their capabilities: streams, signals, lifetimes.
#include "support/daemon.h"

#include <csignal>
#include <fstream>

namespace capstan::test {

namespace {

struct Running {
  rpc::TaskEnvironment::Client environment;
  rpc::Session::Client session;
  rpc::Run::Client run;
};

Running launch(Daemon& daemon, ClientConnection& client,
               std::initializer_list<kj::StringPtr> words) {
  auto ensure = client.supervisor().ensureRequest();
  ensure.initSpec().setTaskId("task");
  auto environment = daemon.wait(ensure.send()).getEnvironment();
  auto request = environment.launchRequest();
  setCommand(request.initSpec(), words);
  auto response = daemon.wait(request.send());
  INFO(response.getError().getMessage().cStr());
  REQUIRE(response.getError().getCode() == ErrorCode::NONE);
  return Running{environment, response.getSession(), response.getRun()};
}

rpc::Subscription::Client follow(Daemon& daemon, rpc::Instance::Client instance,
                                 rpc::OutputSink::Client sink, uint64_t offset = 0) {
  auto request = instance.outputRequest();
  request.setSink(kj::mv(sink));
  request.setOffset(offset);
  request.setFollow(true);
  auto response = daemon.wait(request.send());
  REQUIRE(response.getError().getCode() == ErrorCode::NONE);
  return response.getSubscription();
}

int pidOf(Daemon& daemon, rpc::Session::Client session) {
  return daemon.wait(session.infoRequest().send()).getInfo().getPid();
}

size_t residentKib() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("VmRSS:", 0) == 0) return std::stoul(line.substr(6));
  }
  FAIL("no VmRSS");
  return 0;
}

}  // namespace

TEST_CASE("output arrives in order across stdout and stderr, then the exit") {
  Daemon daemon;
  auto client = daemon.connect();
  auto running = launch(daemon, *client, {"sh", "-c", "echo one; echo two >&2; exit 3"});
  Collector::Seen seen;
  auto subscription = follow(daemon, running.run, kj::heap<Collector>(seen));

  auto exit = daemon.wait(running.run.waitRequest().send());

  CHECK(exit.getExit().getCode() == 3);
  REQUIRE(daemon.becomesTrue([&]() { return seen.ended; }));
  CHECK(seen.out == "one\n");
  CHECK(seen.err == "two\n");
  CHECK(seen.ordered);
  CHECK(seen.next == 8);
}

TEST_CASE("a reader that comes back goes on at its position") {
  Daemon daemon;
  auto client = daemon.connect();
  auto running = launch(daemon, *client, {"sh", "-c", "printf 0123456789"});
  daemon.wait(running.run.waitRequest().send());
  Collector::Seen seen;
  seen.next = 4;
  auto request = running.session.outputRequest();
  request.initPosition().setOffset(4);
  request.setSink(kj::heap<Collector>(seen));
  auto response = daemon.wait(request.send());
  REQUIRE(daemon.becomesTrue([&]() { return seen.ended; }));
  CHECK(seen.out == "456789");
  CHECK(seen.ordered);

  auto beyond = running.session.outputRequest();
  beyond.initPosition().setOffset(11);
  CHECK(daemon.wait(beyond.send()).getError().getCode() == ErrorCode::INVALID_ARGUMENT);
  auto other = running.session.outputRequest();
  other.initPosition().setRunId("r-aaaaaaaaaaaaaaaa");
  CHECK(daemon.wait(other.send()).getError().getCode() == ErrorCode::NOT_FOUND);
}

TEST_CASE("a process that does not read its stdin is killed over the same connection") {
  Daemon daemon;
  auto client = daemon.connect();
  auto running = launch(daemon, *client, {"sleep", "1000"});
  auto stdinStream = daemon.wait(running.run.stdinRequest().send()).getStdin();

  // Far more than all buffers on the way hold.
  auto bytes = kj::heapArray<kj::byte>(64 * 1024);
  kj::Vector<kj::Promise<void>> writes;
  for (int i = 0; i < 64; ++i) {
    auto write = stdinStream.writeRequest();
    write.setBytes(bytes);
    writes.add(write.send().catch_([](kj::Exception&&) {}).eagerlyEvaluate(nullptr));
  }
  auto kill = running.run.signalRequest();
  kill.setName("KILL");
  CHECK(daemon.wait(kill.send()).getError().getCode() == ErrorCode::NONE);
  auto exit = daemon.wait(running.run.waitRequest().send());
  CHECK(kj::str(exit.getExit().getSignal()) == "KILL");
}

TEST_CASE("a kill passes behind 300 waits on one connection") {
  Daemon daemon;
  auto client = daemon.connect();
  auto running = launch(daemon, *client, {"sleep", "1000"});
  uint32_t ended = 0, overloaded = 0;
  kj::Vector<kj::Promise<void>> waits;
  for (int i = 0; i < 300; ++i) {
    waits.add(running.run.waitRequest()
                  .send()
                  .then([&](auto&&) { ++ended; },
                        [&](kj::Exception&& e) {
                          CHECK(e.getType() == kj::Exception::Type::OVERLOADED);
                          ++overloaded;
                        })
                  .eagerlyEvaluate(nullptr));
  }
  auto kill = running.run.signalRequest();
  kill.setName("KILL");
  CHECK(daemon.wait(kill.send()).getError().getCode() == ErrorCode::NONE);
  REQUIRE(daemon.becomesTrue([&]() { return ended + overloaded == 300; }));
  CHECK(ended == 256);
  CHECK(overloaded == 44);
}

TEST_CASE("a reader that stops reading does not grow the daemon") {
  Daemon daemon;
  auto client = daemon.connect();
  auto running = launch(daemon, *client, {"sh", "-c", "head -c 100000000 /dev/zero"});
  Collector::Seen seen;
  seen.keep = false;
  auto hold = kj::newPromiseAndFulfiller<void>();
  auto before = residentKib();
  auto subscription = follow(daemon, running.run, kj::heap<Collector>(seen, kj::mv(hold.promise)));

  // The process itself is not held up: its output goes to the spool.
  daemon.wait(running.run.waitRequest().send());
  CHECK(residentKib() < before + 16 * 1024);

  hold.fulfiller->fulfill();
  REQUIRE(daemon.becomesTrue([&]() { return seen.ended; }));
  CHECK(seen.ordered);
  CHECK(seen.next == 100000000);
  // 64 MiB are kept, an eighth of which goes at once; the rest became an explicit gap.
  CHECK(seen.octets >= 56u << 20);
  CHECK(seen.octets < 80u << 20);
}

TEST_CASE("a reader that holds gets every octet, however slow it is") {
  Daemon daemon;
  auto client = daemon.connect();
  auto running = launch(daemon, *client, {"sh", "-c", "head -c 150000000 /dev/zero"});
  Collector::Seen seen;
  seen.keep = false;
  auto hold = kj::newPromiseAndFulfiller<void>();
  auto request = running.run.outputRequest();
  request.setSink(kj::heap<Collector>(seen, kj::mv(hold.promise)));
  request.setFollow(true);
  request.setHold(true);
  auto delivery = daemon.wait(request.send());
  auto before = residentKib();

  // The process has to wait once ring and spool are full.
  uint64_t end = 0;
  REQUIRE(daemon.becomesTrue([&]() {
    auto info = daemon.wait(running.session.infoRequest().send());
    bool still = info.getInfo().getOutputEnd() == end && end > 0;
    end = info.getInfo().getOutputEnd();
    return still && end > 60u << 20;
  }));
  CHECK(end < 80u << 20);
  CHECK(residentKib() < before + 16 * 1024);

  hold.fulfiller->fulfill();
  CHECK(daemon.wait(running.run.waitRequest().send()).getExit().getCode() == 0);
  REQUIRE(daemon.becomesTrue([&]() { return seen.ended; }));
  CHECK(seen.ordered);
  CHECK(seen.octets == 150000000);
}

TEST_CASE("a session outlives its client, an exec does not") {
  Daemon daemon;
  int sessionPid, execPid = 0;
  {
    auto client = daemon.connect();
    auto running = launch(daemon, *client, {"sleep", "1000"});
    sessionPid = pidOf(daemon, running.session);
    Collector::Seen seen;
    auto exec = running.environment.execRequest();
    setCommand(exec.initSpec(), {"sh", "-c", "echo $$; exec sleep 1000"});
    exec.setSink(kj::heap<Collector>(seen));
    auto started = daemon.wait(exec.send());
    REQUIRE(started.getError().getCode() == ErrorCode::NONE);
    REQUIRE(daemon.becomesTrue([&]() { return seen.out.find('\n') != std::string::npos; }));
    execPid = std::stoi(seen.out);
    CHECK(kill(execPid, 0) == 0);
  }
  CHECK(daemon.becomesTrue([&]() { return kill(execPid, 0) < 0; }));
  CHECK(kill(sessionPid, 0) == 0);

  auto next = daemon.connect();
  auto open = next->supervisor().openRequest();
  open.setId("task");
  auto stop = open.send().getEnvironment().stopRequest();
  stop.setForce(true);
  CHECK(daemon.wait(stop.send()).getError().getCode() == ErrorCode::NONE);
  CHECK(kill(sessionPid, 0) < 0);
}

TEST_CASE("launch(start=false) stops before the start") {
  Daemon daemon;
  auto client = daemon.connect();
  auto ensure = client->supervisor().ensureRequest();
  ensure.initSpec().setTaskId("task");
  auto environment = daemon.wait(ensure.send()).getEnvironment();
  auto request = environment.launchRequest();
  setCommand(request.initSpec(), {"echo", "started"});
  request.getSpec().setStart(false);
  auto session = daemon.wait(request.send()).getSession();
  auto before = daemon.wait(session.infoRequest().send());
  CHECK(before.getInfo().getState() == rpc::SessionState::STARTING);
  CHECK(before.getInfo().getPid() == 0);

  auto run = daemon.wait(session.startRequest().send()).getRun();
  CHECK(daemon.wait(run.waitRequest().send()).getExit().getCode() == 0);
  CHECK(daemon.wait(session.startRequest().send()).getError().getCode() == ErrorCode::WRONG_STATE);
}

TEST_CASE("a command that cannot be executed fails the launch and leaves nothing") {
  Daemon daemon;
  auto client = daemon.connect();
  auto ensure = client->supervisor().ensureRequest();
  ensure.initSpec().setTaskId("task");
  auto environment = daemon.wait(ensure.send()).getEnvironment();
  auto request = environment.launchRequest();
  setCommand(request.initSpec(), {"no-such-program"});
  auto response = daemon.wait(request.send());
  CHECK(response.getError().getCode() == ErrorCode::NOT_FOUND);
  CHECK(kj::str(response.getError().getUpstreamCode()) == "ENOENT");
  CHECK(kj::str(response.getError().getSource()) == "agentctl");
  CHECK(daemon.wait(environment.statusRequest().send()).getStatus().getSessions().size() == 0);
}

TEST_CASE("dropping a launch unwinds it") {
  Daemon daemon;
  auto client = daemon.connect();
  auto ensure = client->supervisor().ensureRequest();
  ensure.initSpec().setTaskId("task");
  auto environment = daemon.wait(ensure.send()).getEnvironment();
  for (uint32_t turns = 0; turns < 12; ++turns) {
    {
      auto request = environment.launchRequest();
      setCommand(request.initSpec(), {"sleep", "1000"});
      auto promise = request.send();
      for (uint32_t i = 0; i < turns; ++i) {
        daemon.loop.timer.afterDelay(0 * kj::NANOSECONDS).wait(daemon.loop.waitScope);
      }
    }
    // Either it had begun to run, then it stays; or nothing of it is left.
    REQUIRE(daemon.becomesTrue([&]() {
      auto status = daemon.wait(environment.statusRequest().send());
      for (auto session: status.getStatus().getSessions()) {
        if (session.getState() != rpc::SessionState::RUNNING) return false;
      }
      return true;
    }));
  }
  auto stop = environment.stopRequest();
  stop.setForce(true);
  CHECK(daemon.wait(stop.send()).getError().getCode() == ErrorCode::NONE);
  CHECK(daemon.becomesTrue([&]() { return !daemon.core().isBusy(); }));
}

TEST_CASE("two sessions of one task have independent streams and lives") {
  Daemon daemon;
  auto client = daemon.connect();
  auto first = launch(daemon, *client, {"sh", "-c", "read x; echo first $x; sleep 1000"});
  auto second = launch(daemon, *client, {"sh", "-c", "read x; echo second $x"});
  Collector::Seen one, two;
  auto a = follow(daemon, first.run, kj::heap<Collector>(one));
  auto b = follow(daemon, second.run, kj::heap<Collector>(two));
  auto say = [&](rpc::Run::Client run, kj::StringPtr text) {
    auto stream = daemon.wait(run.stdinRequest().send()).getStdin();
    auto write = stream.writeRequest();
    write.setBytes(text.asBytes());
    daemon.wait(write.send());
    daemon.wait(stream.endRequest().send());
  };
  say(second.run, "2\n");
  say(first.run, "1\n");
  CHECK(daemon.wait(second.run.waitRequest().send()).getExit().getCode() == 0);
  REQUIRE(daemon.becomesTrue([&]() { return one.out == "first 1\n" && two.ended; }));
  CHECK(two.out == "second 2\n");

  auto stop = first.session.stopRequest();
  stop.setForce(true);
  CHECK(kj::str(daemon.wait(stop.send()).getExit().getSignal()) == "KILL");
}

TEST_CASE("planted secrets are in no log line and no error") {
  LogWatch log;
  Daemon daemon;
  auto client = daemon.connect();
  auto ensure = client->supervisor().ensureRequest();
  ensure.initSpec().setTaskId("task");
  auto environment = daemon.wait(ensure.send()).getEnvironment();
  auto request = environment.launchRequest();
  setCommand(request.initSpec(), {"sh", "-c", "test ${#PLANTED} = 14"});
  auto variable = request.getSpec().initVariables(1)[0];
  variable.setKey("PLANTED");
  variable.setLiteral("planted-secret");
  variable.setOrigin(rpc::Origin::MANAGED_RUNTIME);
  auto run = daemon.wait(request.send()).getRun();
  CHECK(daemon.wait(run.waitRequest().send()).getExit().getCode() == 0);
  auto status = daemon.wait(environment.statusRequest().send());
  CHECK(std::string(kj::str(status.getStatus()).cStr()).find("planted-secret") ==
        std::string::npos);
  for (auto& line: log.lines()) {
    CHECK(std::string(line.cStr()).find("planted-secret") == std::string::npos);
  }
}

}  // namespace capstan::test
