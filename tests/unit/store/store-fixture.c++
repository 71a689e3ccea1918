#include "store-fixture.h"

#include "store/setting-table.h"

#include <atomic>
#include <thread>

namespace capstan::test {

kj::Promise<Result<uint64_t>> Store::set(kj::StringPtr key, kj::StringPtr value,
                                         uint64_t ifVersion) {
  return database->write([key = kj::str(key), value = kj::str(value), ifVersion](Connection& db) {
    return SettingTable(db).put(key, value, ifVersion);
  });
}

kj::String Store::setting(kj::StringPtr key) {
  return get(wait(database->read([key = kj::str(key)](Connection& db) -> Result<kj::String> {
    KJ_IF_MAYBE (found, SettingTable(db).find(key)) {
      return kj::mv(found->value);
    }
    return kj::str();
  })));
}

kj::Promise<Outcome> Store::hold(Gate& gate) {
  Gate entered;
  auto promise =
      database->read([&gate, inside = &entered, first = true](Connection&) mutable -> Outcome {
        if (first) inside->open();
        first = false;
        gate.pass();
        return nullptr;
      });
  entered.pass();
  return promise;
}

}  // namespace capstan::test
