#include "conformance/agentctl/helper-process.h"

#include <csignal>

namespace capstan::test {

namespace {

struct Ready {
  Ready(IoLoop& loop, Helper& helper)
      : controlLink(helper.connect()),
        bulkLink(helper.connect()),
        control(test::control(loop, *controlLink, helper.nonce.asBytes())),
        bulk(test::bulk(loop, *bulkLink, helper.nonce.asBytes())) {}
  kj::Own<RpcConnection> controlLink, bulkLink;
  agentctl::Control::Client control;
  agentctl::Bulk::Client bulk;
};

uint32_t stop(IoLoop& loop, agentctl::Instance::Client instance, bool force,
              uint64_t graceMs = 300) {
  auto request = instance.stopRequest();
  request.setForce(force);
  request.setGraceMs(graceMs);
  auto answer = await(loop, request.send().dropPipeline());
  CHECK_FALSE(answer.hasError());
  return answer.getSurvivors();
}

}  // namespace

TEST_CASE("a process has its variables, its streams and nothing else") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  Ready ready(loop, helper);
  auto instance = started(loop, ready.control,
                          {.script = "env | sort; echo $SECRET >&2; ls /proc/self/fd | wc -l; "
                                     "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; exit 3"});
  auto exit = await(loop, instance.waitRequest().send().dropPipeline());
  CHECK(exit.getExit().getCode() == 3);
  CHECK(exit.getExit().getAt() > 0);
  auto attached = attach(loop, ready.bulk, "x-1");
  drain(loop, attached);
  auto& out = attached.sink->out;
  INFO(out);
  CHECK(out.find("PLAIN=plain value\n") != std::string::npos);
  CHECK(out.find("HOME=/") != std::string::npos);
  CHECK(out.find("AGENTCTL") == std::string::npos);
  CHECK(out.find("4\n") != std::string::npos);  // 0, 1, 2 and ls's own.
  CHECK(out.find("SigBlk:\t0000000000000000") != std::string::npos);
  CHECK(out.find("SigIgn:\t0000000000000000") != std::string::npos);
  CHECK(attached.sink->err == "hush\n");
}

TEST_CASE("a failed exec is told with its errno") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  Ready ready(loop, helper);
  auto missing = configured(loop, ready.control, {.id = "x-1", .program = "no-such-program"});
  auto answer = await(loop, missing.startRequest().send().dropPipeline());
  CHECK(answer.getError().getCode() == rpc::ErrorCode::NOT_FOUND);
  CHECK(answer.getError().getUpstreamCode() == "ENOENT");
  auto denied = configured(loop, ready.control, {.id = "x-2", .program = "/etc/passwd"});
  answer = await(loop, denied.startRequest().send().dropPipeline());
  CHECK(answer.getError().getCode() == rpc::ErrorCode::DENIED);
  CHECK(answer.getError().getUpstreamCode() == "EACCES");
  auto info = await(loop, denied.infoRequest().send().dropPipeline());
  CHECK(info.getInfo().getState() == agentctl::InstanceState::FAILED);
  CHECK(info.getInfo().getError().getUpstreamCode() == "EACCES");
  auto waited = await(loop, denied.waitRequest().send().dropPipeline());
  CHECK(waited.getError().getCode() == rpc::ErrorCode::DENIED);
  auto again = await(loop, denied.startRequest().send().dropPipeline());
  CHECK(again.getError().getCode() == rpc::ErrorCode::WRONG_STATE);
}

TEST_CASE("a forced stop leaves no descendant, however it hides") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  Ready ready(loop, helper);
  auto instance =
      started(loop, ready.control,
              {.script = "setsid sh -c '(env -i sleep 987.411 &); env -i setsid sleep 987.412' & "
                         "(setsid sh -c 'trap \"\" TERM HUP INT; while :; do (sleep 987.413 &); "
                         "sleep 0.01; done' &); sleep 987.414"});
  REQUIRE(becomesTrue(loop, []() {
    return processesWith("987.411") > 0 && processesWith("987.412") > 0 &&
           processesWith("987.413") > 3 && processesWith("987.414") > 0;
  }));
  CHECK(stop(loop, instance, true) == 0);
  CHECK(processesWith("987.41") == 0);
  auto exit = await(loop, instance.waitRequest().send().dropPipeline());
  CHECK(exit.getExit().getSignal() == "KILL");
  CHECK(stop(loop, instance, true) == 0);  // Idempotent.
}

TEST_CASE("descendants outlive the agent, are shown, and end with a stop") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  Ready ready(loop, helper);
  auto instance =
      started(loop, ready.control, {.script = "(setsid sleep 987.421 >/dev/null 2>&1 &); exit 0"});
  CHECK(await(loop, instance.waitRequest().send().dropPipeline()).getExit().getCode() == 0);
  auto info = await(loop, instance.infoRequest().send().dropPipeline());
  CHECK(info.getInfo().getState() == agentctl::InstanceState::EXITED);
  CHECK(info.getInfo().getDescendants() == 1);
  auto refused = ready.control.removeRequest();
  refused.setId("x-1");
  CHECK(await(loop, refused.send().dropPipeline()).getError().getCode() ==
        rpc::ErrorCode::WRONG_STATE);
  CHECK(stop(loop, instance, false) == 0);
  CHECK(processesWith("987.421") == 0);
}

TEST_CASE("TERM comes first and the kill after the grace") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  Ready ready(loop, helper);
  auto polite =
      started(loop, ready.control,
              {.id = "x-1", .script = "trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done"});
  auto attached = attach(loop, ready.bulk, "x-1");
  REQUIRE(becomesTrue(loop, [&]() { return attached.sink->out == "up\n"; }));
  CHECK(stop(loop, polite, false, 20'000) == 0);
  CHECK(await(loop, polite.waitRequest().send().dropPipeline()).getExit().getCode() == 9);
  auto stubborn =
      started(loop, ready.control,
              {.id = "x-2", .script = "trap '' TERM; echo up; while :; do sleep 0.01; done"});
  auto second = attach(loop, ready.bulk, "x-2");
  REQUIRE(becomesTrue(loop, [&]() { return second.sink->out == "up\n"; }));
  CHECK(stop(loop, stubborn, false, 100) == 0);
  CHECK(await(loop, stubborn.waitRequest().send().dropPipeline()).getExit().getSignal() == "KILL");
}

TEST_CASE("signals reach the process group") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  Ready ready(loop, helper);
  auto instance = started(loop, ready.control, {.script = "exec sleep 987.431"});
  auto request = instance.signalRequest();
  request.setName("NOPE");
  CHECK(await(loop, request.send().dropPipeline()).getError().getCode() ==
        rpc::ErrorCode::INVALID_ARGUMENT);
  request = instance.signalRequest();
  request.setName("USR1");
  CHECK_FALSE(await(loop, request.send().dropPipeline()).hasError());
  CHECK(await(loop, instance.waitRequest().send().dropPipeline()).getExit().getSignal() == "USR1");
  request = instance.signalRequest();
  request.setName("USR1");
  CHECK(await(loop, request.send().dropPipeline()).getError().getCode() ==
        rpc::ErrorCode::WRONG_STATE);
}

TEST_CASE("a terminal controls its process and can be resized") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  Ready ready(loop, helper);
  auto instance = started(loop, ready.control,
                          {.script = "if : </dev/tty; then echo ctty; fi; stty size; echo $TERM; "
                                     "trap 'stty size; exit 0' WINCH; while :; do sleep 0.01; done",
                           .terminal = true});
  auto attached = attach(loop, ready.bulk, "x-1");
  auto& out = attached.sink->out;
  REQUIRE(becomesTrue(loop, [&]() { return out.find("xterm") != std::string::npos; }));
  CHECK(out == "ctty\r\n17 91\r\nxterm-256color\r\n");
  loop.timer.afterDelay(100 * kj::MILLISECONDS).wait(loop.waitScope);  // The trap is set by then.
  auto resize = instance.resizeRequest();
  resize.setColumns(123);
  resize.setRows(45);
  CHECK_FALSE(await(loop, resize.send().dropPipeline()).hasError());
  drain(loop, attached);
  CHECK(out.find("45 123\r\n") != std::string::npos);
}

TEST_CASE("a killed helper's reaper ends the tree") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  Ready ready(loop, helper);
  started(loop, ready.control,
          {.script = "(setsid sh -c 'trap \"\" TERM; while :; do sleep 987.441; done' &); "
                     "trap '' TERM; sleep 987.442"});
  REQUIRE(becomesTrue(loop, []() { return processesWith("987.44") > 2; }));
  helper.kill(SIGKILL);
  REQUIRE(helper.ends());
  CHECK(becomesTrue(loop, []() { return processesWith("987.44") == 0; }));
}

TEST_CASE("a killed reaper's tree is adopted and can still be ended") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  Ready ready(loop, helper);
  auto instance = started(loop, ready.control,
                          {.script = "(setsid sleep 987.451 &); trap 'exit 7' USR1; echo $PPID; "
                                     "while :; do sleep 0.01; done"});
  auto attached = attach(loop, ready.bulk, "x-1");
  REQUIRE(becomesTrue(loop, [&]() { return attached.sink->out.find('\n') != std::string::npos; }));
  ::kill(std::stoi(attached.sink->out), SIGKILL);
  loop.timer.afterDelay(100 * kj::MILLISECONDS).wait(loop.waitScope);
  auto signal = instance.signalRequest();
  signal.setName("USR1");
  CHECK_FALSE(await(loop, signal.send().dropPipeline()).hasError());
  CHECK(await(loop, instance.waitRequest().send().dropPipeline()).getExit().getCode() == 7);
  CHECK(processesWith("987.451") == 1);
  CHECK(stop(loop, instance, true) == 0);
  CHECK(processesWith("987.451") == 0);
  auto info = await(loop, instance.infoRequest().send().dropPipeline());
  CHECK(info.getInfo().getDescendants() == 0);
}

}  // namespace capstan::test
