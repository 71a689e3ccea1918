#include "support/local-helper.h"

#include "transport/child.h"
#include "transport/helper-files.h"

#include <kj/debug.h>
#include <kj/io.h>

#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>

namespace capstan::test {

namespace {

struct Pipe {
  kj::AutoCloseFd read;
  kj::AutoCloseFd write;
};
Pipe makePipe() {
  int fds[2];
  KJ_SYSCALL(pipe2(fds, O_CLOEXEC));
  return Pipe{kj::AutoCloseFd(fds[0]), kj::AutoCloseFd(fds[1])};
}

}  // namespace

class LocalHelpers::Process final: public FakeHelper {
public:
  Process(IoLoop& loop, kj::Own<Child> child, kj::String socket, kj::Array<kj::byte> nonce,
          Sharing sharing)
      : loop(loop),
        child(kj::mv(child)),
        socket(kj::mv(socket)),
        nonce(kj::mv(nonce)),
        sharing(sharing) {}

  kj::StringPtr key() const override { return socket; }
  Credential credential() const override {
    return Credential(Credential::Kind::NONCE, kj::heapArray(nonce.asPtr()));
  }
  bool servesMany() const override { return sharing == Sharing::ONE_FOR_ALL; }
  kj::Promise<kj::Own<kj::AsyncIoStream>> dial() override {
    auto address = co_await loop.io.provider->getNetwork().parseAddress(kj::str("unix:", socket));
    co_return co_await address->connect();
  }

private:
  IoLoop& loop;
  kj::Own<Child> child;
  kj::String socket;
  kj::Array<kj::byte> nonce;
  Sharing sharing;
};

kj::String builtAgentctl() {
  const char* folder = std::getenv("AGENTCTL_DIR");
  KJ_REQUIRE(folder != nullptr, "the test needs AGENTCTL_DIR, the folder of the built agentctl");
  auto files = HelperFiles::ofInstallation(kj::StringPtr(folder), nullptr, "/nowhere/test");
  auto found = files.find(HelperFiles::ownPlatform());
  KJ_REQUIRE(found.is<HelperFile>(), found.get<Problem>());
  return kj::mv(found.get<HelperFile>().path);
}

LocalHelpers::LocalHelpers(IoLoop& loop, UvLoop& uv, Entropy& entropy, kj::String program,
                           Sharing sharing)
    : loop(loop), uv(uv), entropy(entropy), program(kj::mv(program)), sharing(sharing) {}

LocalHelpers::~LocalHelpers() noexcept(false) {}

kj::Promise<Result<kj::Own<FakeHelper>>> LocalHelpers::launch(kj::String) {
  if (sharing == Sharing::ONE_EACH) co_return co_await start();
  if (shared == nullptr) co_await starting.run([this]() { return startShared(); });
  KJ_IF_MAYBE (problem, failure) {
    co_return problem->clone();
  }
  co_return kj::addRef(*KJ_ASSERT_NONNULL(shared));
}

kj::Promise<void> LocalHelpers::startShared() {
  auto started = co_await start();
  failure = nullptr;
  if (started.is<Problem>()) {
    failure = kj::mv(started.get<Problem>());
  } else {
    shared = kj::mv(started.get<kj::Own<FakeHelper>>());
  }
}

kj::Promise<Result<kj::Own<FakeHelper>>> LocalHelpers::start() {
  auto socket = folder / kj::str("s", ++count);
  auto nonce = kj::heapArray<kj::byte>(32);
  entropy.fill(nonce);
  auto secret = makePipe();
  auto address = makePipe();
  kj::FdOutputStream(secret.write.get()).write(nonce.begin(), nonce.size());
  secret.write = nullptr;
  ChildOptions child;
  child.argv = kj::arr(kj::str(program), kj::str("serve"), kj::str("--socket"), kj::str(socket),
                       kj::str("--nonce-fd"), kj::str("3"), kj::str("--log"), folder / "log");
  child.descriptors = kj::arr(ChildOptions::Descriptor{1, address.write.get()},
                              ChildOptions::Descriptor{3, secret.read.get()});
  child.session = ChildOptions::Session::OWN;
  auto spawned = Child::spawn(uv, kj::mv(child));
  if (spawned.is<Problem>()) co_return kj::mv(spawned.get<Problem>());
  address.write = nullptr;
  auto process = kj::mv(spawned.get<kj::Own<Child>>());
  // Its line says that it listens; a program that ends closes the pipe.
  auto said = loop.io.lowLevelProvider->wrapInputFd(kj::mv(address.read));
  char line[4096];
  size_t length = 0;
  while (length == 0 || line[length - 1] != '\n') {
    KJ_REQUIRE(length < sizeof(line), "the helper's first line has no end");
    auto n = co_await said->tryRead(line + length, 1, sizeof(line) - length);
    if (n == 0) co_return Problem(ErrorCode::RUNTIME_UNAVAILABLE, kj::str("the helper ended"));
    length += n;
  }
  co_return kj::Own<FakeHelper>(
      kj::refcounted<Process>(loop, kj::mv(process), kj::mv(socket), kj::mv(nonce), sharing));
}

}  // namespace capstan::test
