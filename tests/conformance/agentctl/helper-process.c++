#include "conformance/agentctl/helper-process.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace capstan::test {

bool becomesTrue(IoLoop& loop, kj::Function<bool()> question, kj::Duration limit) {
  auto deadline = loop.timer.now() + limit;
  while (!question()) {
    if (loop.timer.now() > deadline) return false;
    loop.timer.afterDelay(10 * kj::MILLISECONDS).wait(loop.waitScope);
  }
  return true;
}

Helper::Helper(IoLoop& loop, kj::ArrayPtr<const kj::StringPtr> options,
               kj::ArrayPtr<const kj::StringPtr> command)
    : loop(loop), socketPath(folder / "s") {
  kj::Vector<kj::StringPtr> words;
  words.addAll(command);
  if (command.size() == 0) {
    const char* program = std::getenv("AGENTCTL");
    KJ_REQUIRE(program != nullptr, "AGENTCTL names no program");
    words.add(program);
  }
  auto log = folder / "log";
  for (kj::StringPtr word: {"serve"_kj, "--socket"_kj, socketPath.asPtr(), "--nonce-fd"_kj, "3"_kj,
                            "--log"_kj, log.asPtr()}) {
    words.add(word);
  }
  words.addAll(options);
  std::vector<char*> argv;
  for (auto word: words) {
    argv.push_back(const_cast<char*>(word.cStr()));
  }
  argv.push_back(nullptr);

  int nonceEnds[2], outputEnds[2];
  KJ_SYSCALL(pipe2(nonceEnds, O_CLOEXEC));
  KJ_SYSCALL(pipe2(outputEnds, O_CLOEXEC));
  kj::AutoCloseFd nonceIn(nonceEnds[0]), output(outputEnds[0]), outputIn(outputEnds[1]);
  {
    kj::AutoCloseFd nonceOut(nonceEnds[1]);
    KJ_REQUIRE(::write(nonceOut, nonce.begin(), nonce.size()) ==
               static_cast<ssize_t>(nonce.size()));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, outputIn, 1);
  posix_spawn_file_actions_adddup2(&actions, nonceIn, 3);
  int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  KJ_REQUIRE(error == 0, "cannot start", argv[0], error);
  outputIn = nullptr;
  kj::FdInputStream in(kj::mv(output));
  kj::Vector<char> text;
  for (char c = 0; c != '\n';) {
    KJ_REQUIRE(in.tryRead(&c, 1, 1) == 1, "agentctl ended without its address");
    text.add(c);
  }
  line = kj::str(text);
}

Helper::~Helper() noexcept(false) {
  if (collected) return;
  ::kill(child, SIGTERM);
  if (!ends(5 * kj::SECONDS)) {
    ::kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

void Helper::kill(int signal) { ::kill(child, signal); }

bool Helper::ends(kj::Duration limit) {
  return becomesTrue(
      loop,
      [this]() {
        if (!collected) collected = waitpid(child, nullptr, WNOHANG) == child;
        return collected;
      },
      limit);
}

kj::Own<RpcConnection> Helper::connect() {
  auto& network = loop.io.provider->getNetwork();
  auto address = await(loop, network.parseAddress(kj::str("unix:", socketPath)));
  return RpcConnection::connect(loop.timer, await(loop, address->connect()));
}

Begun begin(IoLoop& loop, RpcConnection& link, kj::ArrayPtr<const kj::byte> credential,
            agentctl::CredentialKind kind, uint64_t rotationId) {
  auto challenge = randomBytes(CHALLENGE_BYTES);
  auto request = link.bootstrap().castAs<agentctl::Agentctl>().beginRequest();
  request.setKind(kind);
  request.setChallenge(challenge);
  request.setRotationId(rotationId);
  auto answer = await(loop, request.send().dropPipeline());
  REQUIRE_FALSE(answer.hasError());
  HandshakeView seen{kind, answer.getServerId(), challenge, answer.getChallenge()};
  REQUIRE(isWellFormed(seen));
  auto proof = handshakeProof(credential, seen, HandshakeRole::DAEMON);
  return {answer.getAttempt(), kj::heapArray<kj::byte>(proof.begin(), proof.size()),
          handshakeProofHolds(credential, seen, HandshakeRole::AGENTCTL, answer.getProof())};
}

agentctl::Control::Client control(IoLoop& loop, RpcConnection& link,
                                  kj::ArrayPtr<const kj::byte> credential,
                                  agentctl::CredentialKind kind, uint64_t rotationId) {
  auto begun = begin(loop, link, credential, kind, rotationId);
  REQUIRE(begun.serverProved);
  auto request = begun.attempt.controlRequest();
  request.setProof(begun.proof);
  auto answer = await(loop, request.send().dropPipeline());
  REQUIRE_FALSE(answer.hasError());
  return answer.getControl();
}

agentctl::Bulk::Client bulk(IoLoop& loop, RpcConnection& link,
                            kj::ArrayPtr<const kj::byte> credential) {
  auto begun = begin(loop, link, credential);
  REQUIRE(begun.serverProved);
  auto request = begun.attempt.bulkRequest();
  request.setProof(begun.proof);
  auto answer = await(loop, request.send().dropPipeline());
  REQUIRE_FALSE(answer.hasError());
  return answer.getBulk();
}

agentctl::Instance::Client configured(IoLoop& loop, agentctl::Control::Client control,
                                      const Wanted& wanted) {
  auto create = control.createRequest();
  auto spec = create.initSpec();
  spec.setId(wanted.id);
  spec.setEphemeral(wanted.ephemeral);
  if (wanted.directory != nullptr) spec.setDirectory(wanted.directory);
  spec.setSpoolLimitBytes(wanted.spoolLimit);
  spec.setPauseWhenFull(wanted.pauseWhenFull);
  spec.setStopGraceMs(wanted.stopGraceMs);
  auto made = await(loop, create.send().dropPipeline());
  REQUIRE_FALSE(made.hasError());
  auto instance = made.getInstance();

  auto configure = instance.configureRequest();
  auto config = configure.initConfig();
  if (wanted.program != nullptr) {
    config.initCommand(1).set(0, wanted.program);
  } else {
    auto command = config.initCommand(3);
    command.set(0, "sh");
    command.set(1, "-c");
    command.set(2, wanted.script);
  }
  auto variables = config.initVariables(2);
  variables[0].setKey("PATH");
  variables[0].setValue("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
  variables[1].setKey("PLAIN");
  variables[1].setValue("plain value");
  auto secrets = config.initSecrets(1);
  secrets[0].setKey("SECRET");
  secrets[0].setValue("hush"_kj.asBytes());
  config.setWorkingDirectory("/");
  if (wanted.terminal) {
    auto terminal = config.initTerminal();
    terminal.setColumns(91);
    terminal.setRows(17);
  }
  auto answer = await(loop, configure.send().dropPipeline());
  REQUIRE_FALSE(answer.hasError());
  return instance;
}

agentctl::Instance::Client started(IoLoop& loop, agentctl::Control::Client control,
                                   const Wanted& wanted) {
  auto instance = configured(loop, control, wanted);
  auto answer = await(loop, instance.startRequest().send().dropPipeline());
  INFO(answer.getError().getMessage().cStr());
  REQUIRE_FALSE(answer.hasError());
  REQUIRE(answer.getPid() > 0);
  return instance;
}

kj::Promise<void> Collector::write(WriteContext context) {
  auto params = context.getParams();
  if (params.getOffset() != next) consistent = false;
  auto piece = params.getBytes();
  next = params.getOffset() + piece.size();
  bytes += piece.size();
  hash.update(piece);
  if (keep) {
    auto chars = piece.asChars();
    (params.getStream() == rpc::OutputStream::STDOUT ? out : err)
        .append(chars.begin(), chars.size());
  }
  return stall ? kj::Promise<void>(kj::NEVER_DONE) : kj::Promise<void>(kj::READY_NOW);
}

kj::Promise<void> Collector::gap(GapContext context) {
  auto params = context.getParams();
  if (params.getFrom() != next || params.getTo() <= params.getFrom()) consistent = false;
  gaps += params.getTo() - params.getFrom();
  next = params.getTo();
  return kj::READY_NOW;
}

kj::Promise<void> Collector::end(EndContext context) {
  if (context.getParams().getOffset() != next) consistent = false;
  ended = true;
  return kj::READY_NOW;
}

Attached attach(IoLoop& loop, agentctl::Bulk::Client bulk, kj::StringPtr id, bool follow,
                bool stall, bool keep) {
  auto collector = kj::heap<Collector>();
  auto sink = collector.get();
  sink->stall = stall;
  sink->keep = keep;
  auto request = bulk.outputRequest();
  request.setId(id);
  request.setFollow(follow);
  request.setSink(kj::mv(collector));
  auto answer = await(loop, request.send().dropPipeline());
  REQUIRE_FALSE(answer.hasError());
  return {sink, answer.getSubscription()};
}

void drain(IoLoop& loop, Attached& attached, kj::Duration limit) {
  REQUIRE(becomesTrue(loop, [&]() { return attached.sink->ended; }, limit));
  CHECK(attached.sink->consistent);
}

int processesWith(kj::StringPtr part) {
  int count = 0;
  std::error_code ignored;
  for (auto& entry: std::filesystem::directory_iterator("/proc", ignored)) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    if (!file) continue;
    std::stringstream text;
    text << file.rdbuf();
    if (text.str().find(std::string_view(part.begin(), part.size())) != std::string::npos) ++count;
  }
  return count;
}

uint64_t residentKiB(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("VmRSS:", 0) == 0) return std::strtoull(line.c_str() + 6, nullptr, 10);
  }
  return 0;
}

}  // namespace capstan::test
