// The schema against the table of rights: no method without a rule, no rule without a method.
#include "domain/rights.h"

#include "admin.capnp.h"
#include "bootstrap.capnp.h"
#include "environment.capnp.h"
#include "support/test.h"

#include <capnp/schema.h>

#include <set>
#include <string>

namespace capstan {

namespace {

// What clients implement; Capstan only calls it.
bool isClientSide(const std::string& interface) {
  return interface == "Progress" || interface == "Watcher" || interface == "Acceptor" ||
         interface == "OutputSink";
}

// Every interface that can be reached from a method of another one.
class Walk {
public:
  std::set<std::string> methods;
  std::set<std::string> interfaces;

  void visit(capnp::InterfaceSchema schema) {
    std::string name = schema.getShortDisplayName().cStr();
    if (!interfaces.insert(name).second) return;
    for (auto parent: schema.getSuperclasses())
      visit(parent);
    for (auto method: schema.getMethods()) {
      if (!isClientSide(name)) methods.insert(name + "." + method.getProto().getName().cStr());
      visit(method.getParamType());
      visit(method.getResultType());
    }
  }

private:
  std::set<uint64_t> structs;

  void visit(capnp::StructSchema schema) {
    // Method parameters have no name of their own: they are told apart by id.
    if (!structs.insert(schema.getProto().getId()).second) return;
    for (auto field: schema.getFields())
      visit(field.getType());
  }
  void visit(capnp::Type type) {
    if (type.isInterface()) visit(type.asInterface());
    if (type.isStruct()) visit(type.asStruct());
    if (type.isList()) visit(type.asList().getElementType());
  }
};

Walk walkAll() {
  Walk walk;
  walk.visit(capnp::Schema::from<rpc::Bootstrap>());
  walk.visit(capnp::Schema::from<rpc::DurableEnvironment>());
  walk.visit(capnp::Schema::from<rpc::DurableSession>());
  walk.visit(capnp::Schema::from<rpc::HostKeyChallenge>());
  return walk;
}

}  // namespace

TEST_CASE("every method of the client interface has its right in the table") {
  auto walk = walkAll();
  // A walk that reaches little would prove little.
  for (auto name: {"Supervisor", "Admin", "TaskEnvironment", "Session", "Run", "Instance",
                   "Forward", "ByteStream", "Subscription", "Table", "Persistent"}) {
    INFO(name);
    CHECK(walk.interfaces.count(name) == 1);
  }
  std::set<std::string> ruled;
  for (auto& rule: METHOD_RULES)
    ruled.insert(std::string(rule.method));
  for (auto& method: walk.methods) {
    INFO("no rule for " << method);
    CHECK(ruled.count(method) == 1);
  }
  for (auto& method: ruled) {
    INFO("no such method: " << method);
    CHECK(walk.methods.count(method) == 1);
  }
  CHECK(ruled.size() == std::size(METHOD_RULES));
}

TEST_CASE("methods of an environment and what hangs on it need a right") {
  for (auto& rule: METHOD_RULES) {
    std::string method(rule.method);
    auto interface = method.substr(0, method.find('.'));
    if (interface == "TaskEnvironment" || interface == "Session" || interface == "Instance" ||
        interface == "Run" || interface == "Forward") {
      INFO(method);
      CHECK(rule.right != Right::NONE);
    }
  }
}

TEST_CASE("what ends things is answered however busy a connection is") {
  for (auto method: {"Instance.signal", "Session.stop", "TaskEnvironment.stop",
                     "TaskEnvironment.revoke", "Admin.shutdown"}) {
    INFO(method);
    bool found = false;
    for (auto& rule: METHOD_RULES) {
      if (rule.method != method) continue;
      found = true;
      CHECK(rule.whenBusy == WhenBusy::ANSWERED);
    }
    CHECK(found);
  }
}

TEST_CASE("rights can only be taken away") {
  Rights some{static_cast<uint8_t>(Right::OBSERVE)};
  CHECK((Rights::all() & some).has(Right::OBSERVE));
  CHECK_FALSE((Rights::all() & some).has(Right::LAUNCH));
  CHECK_FALSE((some & Rights{0}).has(Right::OBSERVE));
  CHECK(Rights{0}.has(Right::NONE));
}

}  // namespace capstan
