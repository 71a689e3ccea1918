#include "conformance/backend/cases.h"

namespace capstan::test {

kj::String KJ_STRINGIFY(const Thing& thing) {
  return kj::str(thing.kind, " '", thing.name, "' (", thing.identity, ")");
}

void BackendFixture::spin(kj::Function<bool()> done) {
  while (!done())
    turn();
}

PlaceRecord Environment::place() {
  PlaceRecord record;
  record.environmentId = kj::str(id);
  record.taskId = kj::str("t-", id);
  record.directory = directory.map([](kj::String& path) { return kj::str(path); });
  record.inventory = log.clone();
  return record;
}

CreateRequest Environment::request(bool reuseRequired) {
  CreateRequest wanted;
  wanted.place = place();
  wanted.taskTitle = kj::str("A title");
  wanted.reuseRequired = reuseRequired;
  return wanted;
}

kj::Own<Attachment> Environment::created() {
  auto result = create();
  KJ_IF_MAYBE (problem, result.tryGet<Problem>()) {
    FAIL(kj::str(*problem).cStr());
  }
  return kj::mv(result.get<kj::Own<Attachment>>());
}

CleanupReport Environment::cleanUp(CleanupScope scope) {
  return fixture.wait(fixture.backend().cleanUp(place(), scope, steps, log));
}

void Environment::cleanUpWholly(kj::ArrayPtr<const Thing> foreign) {
  auto report = cleanUp();
  for (auto& line: report.leftovers)
    FAIL_CHECK(line.cStr());
  CHECK(log.items().size() == 0);
  checkSame(foreign, fixture.things());
}

StopReport Environment::stop(StopMode mode) {
  StopRequest request;
  request.mode = mode;
  request.reason = kj::str("the test wants it");
  return fixture.wait(fixture.backend().stopInstance(place(), kj::mv(request)));
}

InventoryItem Environment::workspaceItem() {
  for (auto& each: log.items()) {
    if (each.kind == fixture.workspaceKind()) return cloneItem(each);
  }
  KJ_FAIL_REQUIRE("the inventory has no workspace");
}

namespace {

bool isNamedBy(const Thing& thing, kj::ArrayPtr<const InventoryItem> items) {
  for (auto& each: items) {
    bool same = each.kind == thing.kind && each.name == thing.name;
    if (same && (each.identity.size() == 0 || each.identity == thing.identity)) return true;
  }
  return false;
}

bool isAmong(const Thing& thing, kj::ArrayPtr<const Thing> list) {
  for (auto& each: list) {
    if (each == thing) return true;
  }
  return false;
}

}  // namespace

kj::Vector<Thing> strays(BackendFixture& fixture, kj::ArrayPtr<Environment* const> environments,
                         kj::ArrayPtr<const Thing> foreign) {
  kj::Vector<Thing> result;
  for (auto& thing: fixture.things()) {
    bool known = isAmong(thing, foreign);
    for (auto* each: environments)
      known = known || isNamedBy(thing, each->log.items());
    if (!known) result.add(kj::mv(thing));
  }
  return result;
}

void checkNoStrays(Environment& environment, kj::ArrayPtr<const Thing> foreign) {
  Environment* one = &environment;
  for (auto& thing: strays(environment.fixture, kj::arrayPtr(&one, 1), foreign))
    FAIL_CHECK(kj::str("not in the inventory: ", thing).cStr());
  auto now = environment.fixture.things();
  for (auto& thing: foreign) {
    if (!isAmong(thing, now)) FAIL_CHECK(kj::str("touched, and not ours: ", thing).cStr());
  }
}

void checkComplete(Environment& environment, kj::ArrayPtr<const Thing> foreign) {
  checkNoStrays(environment, foreign);
  for (auto& item: environment.log.items()) {
    INFO(item.kind.cStr());
    CHECK(item.state == InventoryItem::State::MADE);
    CHECK(item.identity.size() > 0);
  }
  CHECK(environment.log.items().size() > 0);
  CHECK(environment.fixture.things().size() == environment.log.items().size() + foreign.size());
}

void checkSame(kj::ArrayPtr<const Thing> before, kj::ArrayPtr<const Thing> after) {
  for (auto& thing: before) {
    if (!isAmong(thing, after)) FAIL_CHECK(kj::str("it is gone: ", thing).cStr());
  }
  for (auto& thing: after) {
    if (!isAmong(thing, before)) FAIL_CHECK(kj::str("it is new: ", thing).cStr());
  }
}

}  // namespace capstan::test
