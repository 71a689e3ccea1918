#include "agentctl/dial.h"

#include "agentctl/reaper-link.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

namespace capstan {

namespace {

constexpr auto CONNECT_LIMIT = 30 * kj::SECONDS;

template <typename Address>
DialAddress pack(const Address& address, socklen_t size, kj::String text) {
  DialAddress result{{}, size, kj::mv(text)};
  std::memcpy(&result.address, &address, size);
  return result;
}

kj::Maybe<DialAddress> literal(kj::StringPtr host, uint16_t port) {
  sockaddr_in four{};
  if (inet_pton(AF_INET, host.cStr(), &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    return pack(four, sizeof(four), kj::str(host, ':', port));
  }
  sockaddr_in6 six{};
  if (inet_pton(AF_INET6, host.cStr(), &six.sin6_addr) == 1) {
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    return pack(six, sizeof(six), kj::str('[', host, "]:", port));
  }
  return nullptr;
}

void addLoopback(kj::Vector<DialAddress>& result, uint16_t port) {
  result.add(KJ_ASSERT_NONNULL(literal("127.0.0.1", port)));
  result.add(KJ_ASSERT_NONNULL(literal("::1", port)));
}

Problem invalid(kj::StringPtr text, kj::StringPtr field) {
  return Problem(ErrorCode::INVALID_ARGUMENT, kj::heapString(text)).at(kj::heapString(field));
}

// Returns 0 and the connected socket, or the errno.
kj::Promise<int> connectTo(kj::UnixEventPort& port, const DialAddress& to, kj::AutoCloseFd& out) {
  int fd = socket(to.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) co_return kj::cp(errno);
  kj::AutoCloseFd owned(fd);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to.address), to.size) < 0) {
    if (errno != EINPROGRESS) co_return kj::cp(errno);
    kj::UnixEventPort::FdObserver observer(port, fd, kj::UnixEventPort::FdObserver::OBSERVE_WRITE);
    co_await observer.whenBecomesWritable();
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0) error = errno;
    if (error != 0) co_return error;
  }
  out = kj::mv(owned);
  co_return 0;
}

kj::Promise<Result<kj::Own<kj::AsyncIoStream>>> tryAll(kj::UnixEventPort& port,
                                                       kj::LowLevelAsyncIoProvider& network,
                                                       kj::Vector<DialAddress> addresses) {
  int error = 0;
  for (auto& address: addresses) {
    kj::AutoCloseFd fd;
    error = co_await connectTo(port, address, fd);
    if (error != 0) continue;
    if (address.address.ss_family != AF_UNIX) {
      int yes = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    }
    co_return network.wrapSocketFd(kj::mv(fd));
  }
  co_return Problem(ErrorCode::UNREACHABLE, kj::str("nothing answers at ", addresses.back().text))
      .from("agentctl", errnoName(error))
      .retryable(RetryHint::SAME_REQUEST_LATER);
}

}  // namespace

Result<kj::Vector<DialAddress>> parseTarget(rpc::Target::Reader target) {
  kj::Vector<DialAddress> result;
  switch (target.which()) {
    case rpc::Target::PORT:
      if (target.getPort() == 0) return invalid("there is no port 0", "target.port");
      addLoopback(result, target.getPort());
      return kj::mv(result);
    case rpc::Target::UNIX_PATH: {
      auto path = target.getUnixPath();
      sockaddr_un address{};
      if (!path.startsWith("/") || path.size() >= sizeof(address.sun_path)) {
        return invalid("a socket's path is absolute and below 108 octets", "target.unixPath");
      }
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path, path.begin(), path.size());
      result.add(pack(address, sizeof(address), kj::str(path)));
      return kj::mv(result);
    }
    case rpc::Target::HOST_PORT: {
      auto host = target.getHostPort().getHost();
      auto port = target.getHostPort().getPort2();
      if (port == 0) return invalid("there is no port 0", "target.hostPort.port2");
      if (host == "localhost") {
        addLoopback(result, port);
        return kj::mv(result);
      }
      KJ_IF_MAYBE (address, literal(host, port)) {
        result.add(kj::mv(*address));
        return kj::mv(result);
      }
      return Problem(ErrorCode::UNSUPPORTED, kj::str("the helper resolves no names"))
          .advise(kj::str("give a literal address or localhost"))
          .at(kj::str("target.hostPort.host"));
    }
  }
  return invalid("unknown kind of target", "target");
}

kj::Promise<Result<kj::Own<kj::AsyncIoStream>>> dialTarget(kj::UnixEventPort& port,
                                                           kj::Timer& timer,
                                                           kj::LowLevelAsyncIoProvider& network,
                                                           kj::Vector<DialAddress> addresses) {
  auto late = timer.afterDelay(CONNECT_LIMIT).then([]() -> Result<kj::Own<kj::AsyncIoStream>> {
    return Problem(ErrorCode::TIMEOUT, kj::str("the connection was not taken in time"))
        .retryable(RetryHint::SAME_REQUEST_LATER);
  });
  return tryAll(port, network, kj::mv(addresses)).exclusiveJoin(kj::mv(late));
}

}  // namespace capstan
