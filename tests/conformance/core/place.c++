#include "conformance/core/place.h"

#include <cstdio>
#include <fstream>
#include <sys/stat.h>

namespace capstan::test {

namespace {

class SocketDialer final: public StreamDialer {
public:
  SocketDialer(kj::Network& network, kj::String path): network(network), path(kj::mv(path)) {}
  kj::Promise<kj::Own<kj::AsyncIoStream>> dial() override {
    auto address = co_await network.parseAddress(kj::str("unix:", path));
    co_return co_await address->connect();
  }

private:
  kj::Network& network;
  kj::String path;
};

kj::StringPtr word(PrepareStep::Status status) {
  constexpr kj::StringPtr WORDS[] = {"pending"_kj, "running"_kj, "completed"_kj, "failed"_kj,
                                     "skipped"_kj};
  return WORDS[static_cast<int>(status)];
}

}  // namespace

void Recorder::report(const PrepareStep& step, uint16_t index, uint16_t all) {
  ++reports;
  total = all;
  while (steps.size() <= index)
    steps.add();
  steps[index] = step.clone();
  everything += kj::str(step.name, step.command, step.output, step.error, step.warning,
                        step.warningDetail, '\n')
                    .cStr();
}

std::string Recorder::summary() const {
  std::string result;
  for (auto& step: steps) {
    if (!result.empty()) result += ", ";
    result += kj::str(step.name, ':', word(step.status)).cStr();
  }
  return result;
}

Place::Place(): making(*this) {
  auto dialer =
      kj::heap<SocketDialer>(loop.io.provider->getNetwork(), kj::str(helper.directory(), "/s"));
  Credential nonce(Credential::Kind::NONCE, kj::heapArray(helper.nonce.asBytes()));
  auto opened = await(loop, AgentLink::open(
                                loop.timer, kj::mv(dialer), HelperKey{kj::mv(nonce), 0, nullptr},
                                [](const HelperInfo&, const Credential&,
                                   uint64_t) -> kj::Promise<Outcome> { return Outcome(nullptr); },
                                Deadlines()));
  REQUIRE(opened.is<kj::Own<AgentLink>>());
  link = kj::mv(opened.get<kj::Own<AgentLink>>());
  sh("mkdir home bin work && git config --file home/.gitconfig user.name T && "
     "git config --file home/.gitconfig user.email t@example");
}

Place::~Place() noexcept(false) { settle(); }

std::string Place::sh(kj::StringPtr script) {
  auto path = folder / ".script";
  std::ofstream(path.cStr()) << "cd " << folder.path().cStr() << " && export HOME=$PWD/home && {\n"
                             << script.cStr() << "\n}\n";
  FILE* pipe = popen(kj::str("sh ", path, " 2>&1").cStr(), "r");
  KJ_REQUIRE(pipe != nullptr);
  std::string result;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;)
    result.append(buffer, n);
  INFO(script.cStr() << "\n" << result);
  REQUIRE(pclose(pipe) == 0);
  return result;
}

bool Place::holds(kj::StringPtr script) {
  return sh(kj::str("if {\n", script, "\n} >/dev/null 2>&1; then echo yes; fi")) == "yes\n";
}

kj::String Place::repository(kj::StringPtr name) {
  sh(kj::str(R"(name=')", name, R"('
    git init -q -b main src-$name && cd src-$name || exit
    echo $name >owner; echo main >what; mkdir dir; echo hidden >dir/.hidden; echo dot >.dot
    printf '#!/bin/sh\n' >run; chmod +x run; ln -s owner link
    git add -A && git commit -qm main && git tag v0
    git checkout -q -b feature && echo feature >what && git commit -qam feature
    git checkout -q main && echo v1 >what && git commit -qam v1 && git tag -a -m v1 v1
    echo pull >what && git commit -qam pull && git update-ref refs/pull/1/head HEAD
    git reset -q --hard v0 && cd .. && git clone -q --mirror src-$name $name.git)"));
  return kj::str("file://", folder.path(), '/', name, ".git");
}

PreparePlan Place::plan() {
  PreparePlan plan;
  plan.environmentId = kj::str("env-aaaaaaaaaaaaaaaa");
  plan.taskId = kj::str("t-1");
  plan.title = kj::str("a title");
  plan.path = folder / "work";
  plan.caller = Caller::ADMINISTRATOR;
  plan.variables =
      kj::arr(ProcessVariable{kj::str("PATH"), kj::str(folder.path(), "/bin:/usr/bin:/bin")},
              ProcessVariable{kj::str("HOME"), folder / "home"});
  return plan;
}

void Place::add(PreparePlan& plan, kj::StringPtr path, kj::StringPtr url, kj::StringPtr ref) {
  kj::Vector<Repository> all;
  for (auto& each: plan.workspace.repositories)
    all.add(each.clone());
  all.add(Repository{kj::str(path), kj::str(url), kj::str(ref)});
  plan.workspace.kind = WorkspaceSpec::Kind::REPOSITORIES;
  plan.workspace.repositories = all.releaseAsArray();
}

void Place::program(kj::StringPtr name, kj::StringPtr script) {
  auto path = kj::str(folder.path(), "/bin/", name);
  std::ofstream(path.cStr()) << "#!/bin/sh\n" << script.cStr() << "\n";
  KJ_SYSCALL(chmod(path.cStr(), 0755));
}

kj::Promise<Outcome> Place::start(PreparePlan plan, kj::Promise<void> interrupt) {
  recorder = Recorder();
  return prepareWorkspace(tools(), kj::mv(plan), recorder, kj::mv(interrupt));
}

std::string Place::told(Outcome outcome) {
  CHECK(instances() == 0);
  KJ_IF_MAYBE (problem, outcome) {
    return kj::str(errorCodeName(problem->code), " at ", problem->field, ": ", *problem).cStr();
  }
  return "(fine)";
}

std::string Place::prepare(PreparePlan plan) { return told(await(loop, start(kj::mv(plan)))); }

std::string Place::cleanUp(PreparePlan plan) {
  recorder = Recorder();
  return told(await(loop, runCleanupScript(tools(), kj::mv(plan), recorder)));
}

Problem Place::refuse(PreparePlan plan) {
  auto outcome = await(loop, start(kj::mv(plan)));
  CHECK(instances() == 0);
  REQUIRE(outcome != nullptr);
  return kj::mv(KJ_ASSERT_NONNULL(outcome));
}

void Place::settle() { await(loop, making.onEmpty()); }

size_t Place::instances() {
  auto listed = await(loop, link->list());
  REQUIRE(listed.is<kj::Array<InstanceReport>>());
  return listed.get<kj::Array<InstanceReport>>().size();
}

void Place::taskFailed(kj::Exception&& exception) {
  KJ_LOG(ERROR, "a task of the place failed", exception);
}

}  // namespace capstan::test
