// Prepare and clean-up scripts inside a place.
#include "conformance/core/place.h"

namespace capstan {

namespace {

using test::becomesTrue;
using test::Place;
using test::processesWith;

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

PreparePlan scripted(Place& place, kj::StringPtr script) {
  auto plan = place.plan();
  plan.prepareScript = kj::str(script);
  return plan;
}

void configure(PreparePlan& plan, kj::StringPtr key, kj::StringPtr value) {
  plan.config = kj::arr(Label{kj::str(key), kj::str(value)});
}

}  // namespace

TEST_CASE("a script runs in the workspace, with the variables it was given") {
  Place place;
  auto plan = scripted(place, "pwd >where; echo \"$GIVEN\" >given; echo out; echo err >&2");
  plan.variables = kj::arr(ProcessVariable{kj::str("PATH"), kj::str("/usr/bin:/bin")},
                           ProcessVariable{kj::str("GIVEN"), kj::str("a b")});
  CHECK(place.prepare(kj::mv(plan)) == "(fine)");
  CHECK(place.recorder.summary() == "Run prepare script:completed");
  CHECK(place.recorder.last().command == "bash -s");
  CHECK(contains(place.recorder.last().output.cStr(), "out\n"));
  CHECK(contains(place.recorder.last().output.cStr(), "err\n"));
  CHECK(place.sh("cat work/where work/given") ==
        std::string((place.folder / "work").cStr()) + "\na b\n");
  CHECK(place.prepare(scripted(place, " \n")) == "(fine)");
  CHECK(place.recorder.reports == 0);
}

TEST_CASE("placeholders are one word each and never shell text, whatever surrounds them") {
  Place place;
  auto url = place.repository("a");
  auto hostile = kj::str("it's \"$(touch pwned)\" `touch pwned` \\ $HOME\n; touch pwned #\t'");
  auto plan = scripted(place,
                       "printf '%s' {{task_title}} >title\n"
                       "printf '%s|' {{task_id}} {{environment_id}} {{session_id}} "
                       "{{workspace}} {{repository_url}} {{branch}} {{git_user_name}} "
                       "{{git_user_email}} >all\n"
                       ": \"{{task_title}}\" '{{task_title}}' `echo {{task_title}}`\n"
                       "cat <<END >/dev/null\n{{task_title}}\nEND\n");
  plan.title = kj::str(hostile);
  Place::add(plan, "sub", url, "feature");
  plan.config = kj::arr(Label{kj::str("git_user_name"), kj::str("A \"B")},
                        Label{kj::str("git_user_email"), kj::str("a@b")});
  CHECK(place.prepare(kj::mv(plan)) == "(fine)");
  CHECK(place.sh("cat work/title") == hostile.cStr());
  CHECK(place.sh("cat work/all") == kj::str("t-1|env-aaaaaaaaaaaaaaaa||", place.folder.path(),
                                            "/work|", url, "|feature|A \"B|a@b|")
                                        .cStr());
  CHECK(place.sh("find . -name 'pwned*'") == "");
}

TEST_CASE("an unknown placeholder is refused before anything is made") {
  Place place;
  auto plan = scripted(place, "echo {{no_such}}");
  Place::add(plan, "", place.repository("a"));
  auto told = place.prepare(kj::mv(plan));
  CHECK(contains(told, "invalidArgument at prepareScript"));
  CHECK(contains(told, "{{no_such}}"));
  CHECK(place.recorder.reports == 0);
  CHECK(place.sh("ls -A work") == "");
}

TEST_CASE("a script's commands find no input and the script is read as a whole") {
  Place place;
  CHECK(place.prepare(scripted(place, "cat; read x || echo none; head -c 9\necho after")) ==
        "(fine)");
  CHECK(place.recorder.last().output == "none\nafter\n");
  // A mistake at its end keeps its beginning from running.
  CHECK(contains(place.prepare(scripted(place, "touch began\nif true; then")), "prepareFailed"));
  CHECK(place.sh("ls -A work") == "");
  auto longOne = kj::str(kj::repeat('#', 300000), "\n#!/bin/sh\necho end # with\n# comments");
  CHECK(place.prepare(scripted(place, longOne)) == "(fine)");
  CHECK(place.recorder.last().output == "end\n");
}

TEST_CASE("a failing script fails the preparation with the tail of its output") {
  Place place;
  auto problem =
      place.refuse(scripted(place, "echo begin; echo 'fatal: the reason' >&2; exit 3; echo no"));
  CHECK(problem.code == ErrorCode::PREPARE_FAILED);
  CHECK(problem.message == "the prepare script failed with exit 3");
  CHECK(problem.cause == "fatal: the reason");
  auto& step = place.recorder.last();
  CHECK(step.status == PrepareStep::Status::FAILED);
  CHECK(contains(step.output.cStr(), "begin\n"));
  CHECK(contains(step.error.cStr(), "exit 3"));
  CHECK(place.refuse(scripted(place, "kill -KILL $$")).message ==
        "the prepare script failed with signal KILL");
  CHECK(contains(place.prepare(scripted(place, "set -e; false; true")), "exit 1"));
}

TEST_CASE("a profile may let a failing script pass, but not one without an end") {
  Place place;
  auto plan = scripted(place, "echo reason; exit 3");
  configure(plan, "prepare_failure", "warn");
  CHECK(place.prepare(kj::mv(plan)) == "(fine)");
  auto& step = place.recorder.last();
  CHECK(step.status == PrepareStep::Status::COMPLETED);
  CHECK(step.warning == "the prepare script failed, which this profile lets pass");
  CHECK(contains(step.warningDetail.cStr(), "exit 3"));
  CHECK(step.output == "reason\n");
  CHECK(step.error == "");

  auto fine = scripted(place, "true");
  configure(fine, "prepare_failure", "warn");
  CHECK(place.prepare(kj::mv(fine)) == "(fine)");
  CHECK(place.recorder.last().warning == "");

  place.limits.deadlines.prepare = 300 * kj::MILLISECONDS;
  auto endless = scripted(place, "sleep 71718");
  configure(endless, "prepare_failure", "warn");
  CHECK(contains(place.prepare(kj::mv(endless)), "timeout"));
}

TEST_CASE("at the deadline the whole tree of the script ends") {
  Place place;
  place.limits.deadlines.prepare = 500 * kj::MILLISECONDS;
  auto problem = place.refuse(scripted(
      place, "trap '' TERM INT HUP; (setsid sleep 71719 &) ; sleep 71719 & echo far; sleep 71719"));
  CHECK(problem.code == ErrorCode::TIMEOUT);
  CHECK(contains(problem.message.cStr(), "the prepare script was not done"));
  CHECK(place.recorder.last().status == PrepareStep::Status::FAILED);
  CHECK(place.recorder.last().output == "far\n");
  CHECK(processesWith("71719") == 0);
}

TEST_CASE("clones and script share one deadline") {
  Place place;
  auto url = place.repository("a");
  place.program("git", "sleep 0.3; exec /usr/bin/git \"$@\"");
  place.limits.deadlines.prepare = 200 * kj::MILLISECONDS;
  auto plan = scripted(place, "echo never");
  Place::add(plan, "", url);
  auto told = place.prepare(kj::mv(plan));
  CHECK(contains(told, "timeout"));
  CHECK(contains(told, "the clone"));
  CHECK(place.recorder.summary() == "Clone a:failed, Run prepare script:pending");
}

TEST_CASE("what a script leaves behind ends with it") {
  Place place;
  CHECK(place.prepare(scripted(place, "sleep 71720 >/dev/null 2>&1 & echo done")) == "(fine)");
  CHECK(place.recorder.last().output == "done\n");
  CHECK(processesWith("71720") == 0);
  // Also when it holds on to the output.
  CHECK(place.prepare(scripted(place, "sleep 71720 & echo done")) == "(fine)");
  CHECK(place.recorder.last().output == "done\n");
  CHECK(processesWith("71720") == 0);
}

TEST_CASE("of much output the tail is kept, as valid text") {
  Place place;
  CHECK(place.prepare(scripted(
            place, "head -c 1048576 /dev/zero | tr '\\0' x; printf '\\377\\303(\\nend\\n'")) ==
        "(fine)");
  std::string output = place.recorder.last().output.cStr();
  CHECK(output.size() <= STEP_OUTPUT_BYTES);
  CHECK(output.size() > STEP_OUTPUT_BYTES - 16);
  CHECK(output.substr(output.size() - 13) == "x\ufffd\ufffd(\nend\n");
}

TEST_CASE("a secret is in nothing that is shown") {
  Place place;
  auto make = [&](kj::StringPtr script) {
    auto plan = scripted(place, script);
    plan.variables = kj::arr(ProcessVariable{kj::str("PATH"), kj::str("/usr/bin:/bin")},
                             ProcessVariable{kj::str("TOKEN"), kj::str("s3cr3t-t0ken"), true},
                             ProcessVariable{kj::str("PLAIN"), kj::str("visible")});
    return plan;
  };
  CHECK(place.prepare(make("test \"$TOKEN\" = s3cr3t-''t0ken || exit 9; echo \"$TOKEN $PLAIN\"; "
                           "printf 's3cr3t'; sleep 0.7; printf -- '-t0ken.\\n'")) == "(fine)");
  CHECK(place.recorder.last().output == "*** visible\n***.\n");
  CHECK_FALSE(contains(place.recorder.everything, "s3cr3t"));

  auto problem = place.refuse(make("echo \"fatal: $TOKEN\" >&2; exit 1"));
  CHECK(problem.cause == "fatal: ***");
  CHECK_FALSE(contains(place.recorder.everything, "s3cr3t"));
  // Nor does the helper's list of processes hold it.
  CHECK(processesWith("s3cr3t-t0ken") == 0);
}

TEST_CASE("output is shown as it grows, at most twice a second") {
  Place place;
  auto work = place.start(
      scripted(place, "i=0; while [ $i -lt 130 ]; do echo $i; sleep 0.01; i=$((i+1)); done"));
  CHECK(becomesTrue(place.loop, [&]() {
    work.poll(place.loop.waitScope);
    return place.recorder.steps.size() > 0 && contains(place.recorder.last().output.cStr(), "3\n");
  }));
  CHECK(place.recorder.last().status == PrepareStep::Status::RUNNING);
  auto begun = place.loop.timer.now();
  auto reports = place.recorder.reports;
  CHECK(test::await(place.loop, kj::mv(work)) == nullptr);
  auto halves = (place.loop.timer.now() - begun) / (500 * kj::MILLISECONDS);
  // One more for the rest of an interval, one for the end.
  CHECK(place.recorder.reports - reports <= static_cast<size_t>(halves) + 2);
  CHECK(contains(place.recorder.last().output.cStr(), "129\n"));
}

TEST_CASE("a dropped preparation leaves no process, whenever it is dropped") {
  Place place;
  // Before the helper has answered anything.
  {
    auto work = place.start(scripted(place, "sleep 71721"));
  }
  auto reports = place.recorder.reports;
  place.settle();
  CHECK(place.instances() == 0);
  CHECK(processesWith("71721") == 0);
  for (int turns = 1; turns < 40; turns += 3) {
    auto work = place.start(scripted(place, "sleep 71721"));
    for (int i = 0; i < turns; ++i) {
      CHECK_FALSE(work.poll(place.loop.waitScope));
      place.loop.timer.afterDelay(0 * kj::NANOSECONDS).wait(place.loop.waitScope);
    }
    {
      auto dropped = kj::mv(work);
    }
    reports = place.recorder.reports;
    place.settle();
    CHECK(place.instances() == 0);
    CHECK(processesWith("71721") == 0);
  }
  auto work = place.start(scripted(place, "setsid sleep 71721 & sleep 71721"));
  CHECK(becomesTrue(place.loop, [&]() {
    work.poll(place.loop.waitScope);
    return processesWith("71721") >= 2;
  }));
  {
    auto dropped = kj::mv(work);
  }
  reports = place.recorder.reports;
  place.settle();
  CHECK(processesWith("71721") == 0);
  CHECK(place.recorder.reports == reports);  // The sink is not used any more.
}

TEST_CASE("an interrupted preparation ends its processes, then says so") {
  Place place;
  auto pair = kj::newPromiseAndFulfiller<void>();
  auto work = place.start(scripted(place, "echo far; setsid sleep 71724 & sleep 71724"),
                          kj::mv(pair.promise));
  CHECK(becomesTrue(place.loop, [&]() {
    work.poll(place.loop.waitScope);
    return processesWith("71724") >= 2 && place.recorder.last().output == "far\n";
  }));
  pair.fulfiller->fulfill();
  auto outcome = test::await(place.loop, kj::mv(work));
  CHECK(KJ_ASSERT_NONNULL(outcome).code == ErrorCode::CANCELLED);
  CHECK(processesWith("71724") == 0);
  CHECK(place.recorder.last().status == PrepareStep::Status::FAILED);
  CHECK(place.recorder.last().output == "far\n");

  // One that nobody can give any more interrupts nothing.
  auto never = kj::newPromiseAndFulfiller<void>();
  auto other = place.start(scripted(place, "sleep 0.2"), kj::mv(never.promise));
  never.fulfiller = nullptr;
  CHECK(test::await(place.loop, kj::mv(other)) == nullptr);
}

TEST_CASE("a helper that dies makes the preparation fail") {
  Place place;
  auto work = place.start(scripted(place, "echo x; sleep 71722"));
  CHECK(becomesTrue(place.loop, [&]() {
    work.poll(place.loop.waitScope);
    return processesWith("71722") > 0;
  }));
  place.helper.kill(SIGKILL);
  auto outcome = test::await(place.loop, kj::mv(work));
  INFO(kj::str(KJ_ASSERT_NONNULL(outcome)));
  CHECK(KJ_ASSERT_NONNULL(outcome).code == ErrorCode::UNREACHABLE);
  CHECK(place.recorder.last().status == PrepareStep::Status::FAILED);
}

TEST_CASE("the shell is the profile's, else bash, else sh") {
  Place place;
  auto plan = scripted(place, "echo ${BASH_VERSION:-none}");
  configure(plan, "shell", "/bin/sh");
  CHECK(place.prepare(kj::mv(plan)) == "(fine)");
  CHECK(place.recorder.last().command == "/bin/sh -s");

  place.sh("ln -s \"$(command -v dash)\" bin/sh");
  auto bare = scripted(place, "echo ${BASH_VERSION:-none}");
  bare.variables = kj::arr(ProcessVariable{kj::str("PATH"), place.folder / "bin"});
  CHECK(place.prepare(kj::mv(bare)) == "(fine)");
  CHECK(place.recorder.last().command == "sh -s");
  CHECK(place.recorder.last().output == "none\n");

  auto unknown = scripted(place, "true");
  configure(unknown, "shell", "no-such-shell");
  auto problem = place.refuse(kj::mv(unknown));
  CHECK(problem.code == ErrorCode::PREPARE_FAILED);
  CHECK(problem.field == "config.shell");
  auto wrong = scripted(place, "true");
  configure(wrong, "shell", "bash -e");
  CHECK(contains(place.prepare(kj::mv(wrong)), "invalidArgument at config.shell"));
}

TEST_CASE("a clean-up script runs when it is asked for, in its own time") {
  Place place;
  auto make = [&](kj::StringPtr script) {
    auto plan = place.plan();
    plan.cleanupScript = kj::str(script);
    plan.prepared = true;
    return plan;
  };
  CHECK(place.prepare(make("touch no")) == "(fine)");
  CHECK(place.sh("ls work") == "");
  CHECK(place.cleanUp(make("touch {{task_id}}")) == "(fine)");
  CHECK(place.recorder.summary() == "Run clean-up script:completed");
  CHECK(place.sh("ls work") == "t-1\n");
  CHECK(contains(place.cleanUp(make("exit 4")), "the clean-up script failed with exit 4"));
  CHECK(contains(place.cleanUp(make("{{x}}")), "invalidArgument at cleanupScript"));
  CHECK(place.cleanUp(make("")) == "(fine)");
  place.limits.deadlines.cleanup = 300 * kj::MILLISECONDS;
  CHECK(contains(place.cleanUp(make("sleep 71723")), "timeout"));
  CHECK(processesWith("71723") == 0);
}

}  // namespace capstan
