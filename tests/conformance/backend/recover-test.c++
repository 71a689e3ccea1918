// Takes places back after a start of the daemon, reaches their helpers, and asks for health.

#include "conformance/backend/cases.h"

namespace capstan::test {

TEST_CASE("recovery answers for each record, in their order") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  kj::Vector<kj::Own<Environment>> all;
  for (auto id: {"env-r1", "env-r2", "env-r3", "env-r4"})
    all.add(kj::heap<Environment>(*fixture, id));
  auto attachment = all[0]->created();  // The second was never made.
  all[2]->created();
  for (auto& item: all[2]->log.clone())
    fixture->vanish(item);
  all[3]->created();
  auto before = fixture->things();
  fixture->restart();

  kj::Vector<PlaceRecord> records;
  for (auto& each: all)
    records.add(each->place());
  PlaceRecord odd;  // Of a later version, or damaged.
  odd.environmentId = kj::str("env-odd");
  InventoryItem item;
  item.kind = kj::str(fixture->workspaceKind());
  item.state = InventoryItem::State::MADE;
  odd.inventory.add(kj::mv(item));
  kj::Vector<PlaceRecord> asked;
  asked.add(kj::mv(odd));
  for (auto& each: records)
    asked.add(kj::mv(each));
  auto answers = fixture->wait(fixture->backend().recoverInstances(asked.releaseAsArray()));

  REQUIRE(answers.size() == 5);
  CHECK(answers[0].environmentId == "env-odd");
  for (size_t i = 0; i < 4; ++i) {
    auto& answer = answers[i + 1];
    CHECK(answer.environmentId == all[i]->id);
    CHECK((answer.attachment != nullptr) == (answer.kind == Recovered::Kind::ATTACHED));
    if (answer.kind == Recovered::Kind::UNKNOWN) CHECK(answer.why != nullptr);
  }
  CHECK(answers[1].kind == Recovered::Kind::ATTACHED);
  CHECK(answers[4].kind == Recovered::Kind::ATTACHED);
  if (!fixture->oneHelperForAll()) {
    for (size_t i: {0, 2, 3})
      CHECK(answers[i].kind == Recovered::Kind::GONE);
  }
  KJ_IF_MAYBE (again, answers[1].attachment) {
    CHECK((*again)->workspace() == attachment->workspace());
    CHECK((*again)->helperKey() == attachment->helperKey());
  }
  checkSame(before, fixture->things());
}

TEST_CASE("recovery of nothing is nothing") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  CHECK(fixture->wait(fixture->backend().recoverInstances(nullptr)).size() == 0);
}

TEST_CASE("a health check reads only, and an unhealthy runtime is an answer") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  auto foreign = kj::arr(fixture->plant());
  auto healthy = fixture->wait(fixture->backend().healthCheck());
  CHECK(healthy.healthy);
  CHECK(healthy.reason == nullptr);
  CHECK(healthy.version.size() > 0);
  checkSame(foreign, fixture->things());

  fixture->makeUnhealthy();
  auto ill = fixture->wait(fixture->backend().healthCheck());
  CHECK_FALSE(ill.healthy);
  KJ_IF_MAYBE (reason, ill.reason) {
    CHECK(reason->message.size() > 0);
  } else {
    FAIL("no reason");
  }
  fixture->heal();
  CHECK(fixture->wait(fixture->backend().healthCheck()).healthy);
  checkSame(foreign, fixture->things());
}

TEST_CASE("a dialer outlives its attachment and comes back after a cut") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-dial");
  auto dialer = environment.created()->dialer();
  for (int round = 0; round < 3; ++round) {
    auto stream = fixture->wait(dialer->dial());
    kj::byte buffer[1];
    auto reading = stream->tryRead(buffer, 1, 1);
    bool ended = false;
    auto watching = reading
                        .then([&](size_t n) { ended = n == 0; },
                              [&](kj::Exception&& e) {
                                CHECK(e.getType() == kj::Exception::Type::DISCONNECTED);
                                ended = true;
                              })
                        .eagerlyEvaluate(nullptr);
    if (!fixture->cutConnections(environment.id)) continue;
    fixture->spin([&]() { return ended; });
  }
  // Also from another attachment to the same helper.
  auto other = environment.created();
  CHECK(fixture->wait(other->dialer()->dial()).get() != nullptr);
}

TEST_CASE("a dial that is dropped leaves the dialer usable") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-drop");
  auto dialer = environment.created()->dialer();
  bool done = false;
  for (size_t turns = 0; !done; ++turns) {
    REQUIRE(turns < SWEEP_LIMIT);
    done = dropAfter(*fixture, dialer->dial(), turns);
  }
  CHECK(fixture->wait(dialer->dial()).get() != nullptr);
}

TEST_CASE("a watch says nothing of itself and can be dropped") {
  LogWatch logs;
  class Nothing final: public RuntimeObserver {
  public:
    void changed(kj::StringPtr, kj::StringPtr, Change change, kj::Maybe<const Problem&>) override {
      if (change != Change::AVAILABLE) FAIL_CHECK("something was reported to be wrong");
    }
  } observer;
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-watch");
  {
    auto watching = fixture->backend().watch(observer).eagerlyEvaluate(
        [](kj::Exception&& e) { FAIL_CHECK(kj::str(e).cStr()); });
    environment.created();
    CHECK_FALSE(watching.poll(fixture->waitScope()));
  }
  environment.cleanUpWholly(nullptr);
}

}  // namespace capstan::test
