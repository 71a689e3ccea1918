#include "client/connection.h"

namespace capstan {

kj::Promise<kj::Own<ClientConnection>> ClientConnection::connectUnix(kj::AsyncIoContext& io,
                                                                     kj::String path) {
  auto address = co_await io.provider->getNetwork().parseAddress(kj::str("unix:", path));
  auto stream = co_await address->connect();
  co_return over(io.provider->getTimer(), kj::mv(stream));
}

kj::Own<ClientConnection> ClientConnection::over(kj::Timer& timer,
                                                 kj::Own<kj::AsyncIoStream> stream) {
  return kj::heap<ClientConnection>(RpcConnection::connect(timer, kj::mv(stream)));
}

ClientConnection::ClientConnection(kj::Own<RpcConnection> connectionParam)
    : connection(kj::mv(connectionParam)), entry(connection->bootstrap().castAs<rpc::Bootstrap>()) {
  auto request = entry.authenticateRequest();
  request.initCredential().setPeer();
  auto granted = request.send();
  own = granted.getSupervisor();
  administration = granted.getAdmin();
}

}  // namespace capstan
