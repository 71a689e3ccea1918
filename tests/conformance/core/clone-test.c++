// Repositories come into a workspace, with real git.
#include "conformance/core/place.h"

namespace capstan {

namespace {

using test::becomesTrue;
using test::Place;
using test::processesWith;

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("one repository becomes the workspace's root, with everything in it") {
  Place place;
  auto url = place.repository("a");
  auto plan = place.plan();
  Place::add(plan, "", url);
  CHECK(place.prepare(kj::mv(plan)) == "(fine)");
  CHECK(place.recorder.summary() == "Clone a:completed");
  CHECK(place.recorder.last().command == kj::str("git clone ", url));
  CHECK(place.recorder.last().startedAt > 0);
  CHECK(place.recorder.last().endedAt >= place.recorder.last().startedAt);
  CHECK(place.sh("ls -A work") == ".dot\n.git\ndir\nlink\nowner\nrun\nwhat\n");
  CHECK(place.sh("cd work && git status --porcelain && git branch --show-current && "
                 "cat what dir/.hidden link && test -x run && git config remote.origin.url") ==
        std::string("main\nmain\nhidden\na\n") + url.cStr() + "\n");
}

TEST_CASE("several repositories go to their folders") {
  Place place;
  auto plan = place.plan();
  Place::add(plan, "one", place.repository("a"));
  Place::add(plan, "deep/er/two", place.repository("b"), "feature");
  plan.firstStep = 2;
  CHECK(place.prepare(kj::mv(plan)) == "(fine)");
  CHECK(place.recorder.summary() ==
        ":pending, :pending, Clone one:completed, "
        "Clone deep/er/two:completed");
  CHECK(place.recorder.total == 4);
  CHECK(place.sh("cd work && ls -A . deep/er; cat one/owner one/what deep/er/two/owner "
                 "deep/er/two/what") == ".:\ndeep\none\n\ndeep/er:\ntwo\na\nmain\nb\nfeature\n");
}

TEST_CASE("a ref is a branch, a tag, a commit or any ref of the remote") {
  Place place;
  auto url = place.repository("a");
  auto state = [&](kj::StringPtr ref) {
    place.sh("rm -rf work && mkdir work");
    auto plan = place.plan();
    Place::add(plan, "", url, ref);
    INFO(ref);
    CHECK(place.prepare(kj::mv(plan)) == "(fine)");
    return place.sh("cd work && cat what && echo $(git branch --show-current)");
  };
  CHECK(state("feature") == "feature\nfeature\n");
  CHECK(place.sh("cd work && git rev-parse --abbrev-ref @{upstream}") == "origin/feature\n");
  CHECK(state("refs/heads/feature") == "feature\nfeature\n");
  CHECK(state("main") == "main\nmain\n");
  CHECK(state("v1") == "v1\n\n");
  CHECK(state("refs/tags/v1") == "v1\n\n");
  CHECK(state("refs/pull/1/head") == "pull\n\n");
  auto commit = place.sh("cd src-a && git rev-parse feature");
  CHECK(state(kj::heapString(commit.data(), 40)) == "feature\n\n");
  CHECK(state(kj::heapString(commit.data(), 9)) == "feature\n\n");
  // A branch goes before a tag of the same name.
  place.sh("cd a.git && git tag feature v1");
  CHECK(state("feature") == "feature\nfeature\n");
}

TEST_CASE("a ref that is not there fails the preparation and leaves no clone") {
  Place place;
  auto url = place.repository("a");
  for (auto ref: {"no-such", "0123456789012345678901234567890123456789"}) {
    for (auto path: {"", "sub"}) {
      auto plan = place.plan();
      Place::add(plan, path, url, ref);
      auto problem = place.refuse(kj::mv(plan));
      CHECK(problem.code == ErrorCode::PREPARE_FAILED);
      CHECK(problem.field == "spec.workspace.repositories[0].ref");
      CHECK(contains(problem.message.cStr(), ref));
      CHECK(place.recorder.last().status == PrepareStep::Status::FAILED);
      CHECK(contains(place.recorder.last().error.cStr(), ref));
      CHECK(place.sh("ls -A work") == "");
    }
  }
}

TEST_CASE("an empty repository is cloned") {
  Place place;
  place.sh("git init -q --bare -b trunk e.git");
  auto plan = place.plan();
  Place::add(plan, "", kj::str("file://", place.folder.path(), "/e.git"));
  CHECK(place.prepare(kj::mv(plan)) == "(fine)");
  CHECK(place.sh("cd work && git branch --show-current") == "trunk\n");
}

TEST_CASE("a clone that is there is kept with all its changes") {
  Place place;
  auto url = place.repository("a");
  for (auto path: {"", "sub"}) {
    place.sh("rm -rf work && mkdir work");
    auto plan = place.plan();
    Place::add(plan, path, url);
    CHECK(place.prepare(kj::mv(plan)) == "(fine)");
    place.sh(kj::str("cd work/", path,
                     " && echo mine >what && echo new >new && rm owner && "
                     "git checkout -q -b other"));
    auto again = place.plan();
    Place::add(again, path, url);
    CHECK(place.prepare(kj::mv(again)) == "(fine)");
    CHECK(place.recorder.last().status == PrepareStep::Status::SKIPPED);
    CHECK(place.sh(kj::str("cd work/", path,
                           " && cat what new && git branch --show-current && "
                           "ls")) == "mine\nnew\nother\ndir\nlink\nnew\nrun\nwhat\n");
  }
}

TEST_CASE("another repository's clone and other files are refused and not touched") {
  Place place;
  auto url = place.repository("a");
  auto other = place.repository("b");
  for (auto path: {"", "sub"}) {
    auto plan = place.plan();
    Place::add(plan, path, url);
    CHECK(place.prepare(kj::mv(plan)) == "(fine)");
    auto second = place.plan();
    Place::add(second, path, other);
    auto problem = place.refuse(kj::mv(second));
    CHECK(problem.code == ErrorCode::WRONG_STATE);
    CHECK(problem.field == "spec.workspace.repositories[0]");
    CHECK(place.sh(kj::str("cat work/", path, "/owner")) == "a\n");

    place.sh(kj::str("rm -rf work && mkdir -p work/", path, " && echo x >work/", path, "/.file"));
    auto third = place.plan();
    Place::add(third, path, url);
    CHECK(place.refuse(kj::mv(third)).code == ErrorCode::WRONG_STATE);
    CHECK(place.sh(kj::str("ls -A work/", path)) == ".file\n");
    place.sh("rm -rf work && mkdir work");
  }
  place.sh("ln -s /nowhere work/sub");
  auto plan = place.plan();
  Place::add(plan, "sub", url);
  CHECK(place.refuse(kj::mv(plan)).code == ErrorCode::WRONG_STATE);
}

TEST_CASE("a clone cut half way never looks finished, and the next attempt makes it whole") {
  Place place;
  auto url = place.repository("a");
  for (auto path: {"", "sub"}) {
    for (auto at: {"clone", "checkout"}) {
      INFO(path << " cut at " << at);
      place.sh("rm -rf work && mkdir work");
      // Does its work, then never ends.
      place.program("git", kj::str("/usr/bin/git \"$@\" || exit\n"
                                   "case \" $* \" in *' ",
                                   at, " '*) sleep 71717 ;; esac"));
      {
        auto plan = place.plan();
        Place::add(plan, path, url);
        auto work = place.start(kj::mv(plan));
        CHECK(becomesTrue(place.loop, [&]() {
          work.poll(place.loop.waitScope);
          return processesWith("71717") > 0;
        }));
      }
      place.settle();
      CHECK(processesWith("71717") == 0);
      CHECK(place.instances() == 0);
      CHECK(place.holds("set -- work/.capstan-clone-*; [ -d \"$1/.git\" ]"));
      CHECK_FALSE(place.holds(kj::str("[ -e work/", path, "/.git ]")));
      place.sh("rm bin/git");
      auto plan = place.plan();
      Place::add(plan, path, url);
      CHECK(place.prepare(kj::mv(plan)) == "(fine)");
      CHECK(place.sh(kj::str("cd work/", path, " && git status --porcelain && ls -A")) ==
            ".dot\n.git\ndir\nlink\nowner\nrun\nwhat\n");
      CHECK_FALSE(place.holds("ls -d work/.capstan-clone-*"));
    }
  }
}

TEST_CASE("a root that was settled half way is settled by the next attempt") {
  Place place;
  auto url = place.repository("a");
  // Fails the move of one entry, as a kill between two would.
  place.program("mv", "case \"$*\" in */run*) exit 1 ;; esac; exec /bin/mv \"$@\"");
  auto plan = place.plan();
  Place::add(plan, "", url);
  CHECK(contains(place.prepare(kj::mv(plan)), "prepareFailed at"));
  CHECK(place.holds("[ -e work/owner ]"));
  CHECK_FALSE(place.holds("[ -e work/.git ]"));
  place.sh("rm bin/mv");
  auto again = place.plan();
  Place::add(again, "", url);
  CHECK(place.prepare(kj::mv(again)) == "(fine)");
  CHECK(place.sh("cd work && git status --porcelain && ls -A && ls -A .git | grep capstan; :") ==
        ".dot\n.git\ndir\nlink\nowner\nrun\nwhat\n");
}

TEST_CASE("a url is never an option, a command or a protocol that is not allowed") {
  Place place;
  auto url = place.repository("a");
  auto pwned = place.folder / "pwned";
  auto tries = [&](kj::StringPtr hostile, kj::StringPtr ref, Caller caller) {
    auto plan = place.plan();
    plan.caller = caller;
    Place::add(plan, "", hostile, ref);
    auto told = place.prepare(kj::mv(plan));
    INFO(hostile << ' ' << ref << ": " << told);
    CHECK(contains(told, "prepareFailed"));
    CHECK_FALSE(place.holds("[ -e pwned ]"));
    CHECK(place.sh("ls -A work") == "");
  };
  // The rules of domain/workspace refuse all of these before; here they are not asked.
  tries(kj::str("--upload-pack=touch ", pwned), "", Caller::ADMINISTRATOR);
  tries(kj::str("ext::sh -c touch% ", pwned), "", Caller::ADMINISTRATOR);
  tries(kj::str("$(touch ", pwned, ")"), "", Caller::ADMINISTRATOR);
  tries(kj::str("'; touch ", pwned, "; '"), "", Caller::ADMINISTRATOR);
  tries(url, kj::str("--upload-pack=touch ", pwned), Caller::ADMINISTRATOR);
  tries(url, kj::str("$(touch ", pwned, ")"), Caller::ADMINISTRATOR);
  tries(url, "--orphan", Caller::ADMINISTRATOR);
  tries(url, "", Caller::ORDINARY);
  CHECK(contains(place.recorder.last().output.cStr(), "not allowed"));
  // Whatever the profile's variables say.
  auto plan = place.plan();
  plan.variables = kj::arr(ProcessVariable{kj::str("PATH"), kj::str("/usr/bin:/bin")},
                           ProcessVariable{kj::str("GIT_ALLOW_PROTOCOL"), kj::str("file:ext")},
                           ProcessVariable{kj::str("GIT_DIR"), place.folder / "a.git"});
  plan.caller = Caller::ORDINARY;
  Place::add(plan, "", url);
  CHECK(contains(place.prepare(kj::mv(plan)), "prepareFailed"));
}

TEST_CASE("a place that was prepared is left alone as long as it is there") {
  Place place;
  auto url = place.repository("a");
  auto make = [&](bool prepared) {
    auto plan = place.plan();
    Place::add(plan, "", url);
    plan.prepareScript = kj::str("echo run >>{{workspace}}/runs");
    plan.prepared = prepared;
    return plan;
  };
  CHECK(place.prepare(make(false)) == "(fine)");
  place.sh("cd work && git remote set-url origin ssh://git@git.example/a && echo mine >what");
  CHECK(place.prepare(make(true)) == "(fine)");
  CHECK(place.recorder.summary() == "Clone a:skipped, Run prepare script:skipped");
  CHECK(place.sh("cat work/runs work/what") == "run\nmine\n");
  // A script that has become unusable since does not matter any more.
  auto plan = make(true);
  plan.prepareScript = kj::str("{{unknown}}");
  CHECK(place.prepare(kj::mv(plan)) == "(fine)");

  place.sh("rm -rf work && mkdir work");
  CHECK(contains(place.prepare(make(true)), "workspaceLost at spec.workspace.repositories[0]"));
  CHECK(place.sh("ls -A work") == "");
}

TEST_CASE("what has to be used again is never made") {
  Place place;
  auto url = place.repository("a");
  auto make = [&](bool reuse) {
    auto plan = place.plan();
    Place::add(plan, "", url);
    plan.workspace.reuseRequired = reuse;
    return plan;
  };
  CHECK(contains(place.prepare(make(true)), "workspaceLost"));
  CHECK(place.sh("ls -A work") == "");
  CHECK(place.prepare(make(false)) == "(fine)");
  CHECK(place.prepare(make(true)) == "(fine)");
}

TEST_CASE("a place without git says so") {
  Place place;
  auto url = place.repository("a");
  place.sh("for p in sh mkdir rm; do ln -s \"$(command -v $p)\" bin/$p; done");
  auto plan = place.plan();
  plan.variables = kj::arr(ProcessVariable{kj::str("PATH"), place.folder / "bin"});
  Place::add(plan, "", url);
  auto problem = place.refuse(kj::mv(plan));
  CHECK(problem.code == ErrorCode::PREPARE_FAILED);
  CHECK(problem.message == "the environment has no git");
}

}  // namespace capstan
