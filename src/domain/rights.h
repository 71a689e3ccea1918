#pragma once
// Which right each method of the client interface needs. The one place where that is decided: the
// guard with which every method begins looks here at compile time, and a test walks the schema.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace capstan {

// One right of a reference to an environment. Values are bits of `Rights`.
enum class Right : uint8_t {
  NONE = 0,  // Any holder of the capability.
  OBSERVE = 1 << 0,
  ATTACH = 1 << 1,
  LAUNCH = 1 << 2,
  EXEC = 1 << 3,
  FORWARD = 1 << 4,
  STOP = 1 << 5,
  CLEANUP = 1 << 6,
  DELEGATE = 1 << 7,
};

// A set of rights. Attenuation can only take away.
struct Rights {
  uint8_t bits = 0;

  static constexpr Rights all() { return {0xff}; }
  constexpr bool has(Right right) const {
    return (bits & static_cast<uint8_t>(right)) == static_cast<uint8_t>(right);
  }
  constexpr Rights operator&(Rights other) const {
    return {static_cast<uint8_t>(bits & other.bits)};
  }
};

// The word for a right in messages: "observe", "launch", ...
std::string_view rightName(Right right);

// Whether a method is answered while its connection has too many calls in flight.
enum class WhenBusy : uint8_t {
  REFUSED,   // Answers "overloaded", retryable.
  ANSWERED,  // What ends things must never be refused: signal, stop, revoke, shutdown.
};

struct MethodRule {
  std::string_view method;  // "Interface.method" as in the schema.
  Right right;
  WhenBusy whenBusy = WhenBusy::REFUSED;
};

// Every method that Capstan serves to clients. Interfaces that clients implement (Progress,
// Watcher, Acceptor, OutputSink) are not in it; ByteStream and Handle are: both sides serve them.
inline constexpr MethodRule METHOD_RULES[] = {
    {"Bootstrap.serverInfo", Right::NONE},
    {"Bootstrap.peer", Right::NONE},
    {"Bootstrap.authenticate", Right::NONE},
    {"Bootstrap.restore", Right::NONE},
    {"Bootstrap.forget", Right::NONE},
    {"Supervisor.ensure", Right::NONE},
    {"Supervisor.open", Right::NONE},
    {"Supervisor.list", Right::NONE},
    {"Supervisor.watch", Right::NONE},
    {"Supervisor.runtimes", Right::NONE},
    {"Supervisor.executors", Right::NONE},
    {"TaskEnvironment.status", Right::OBSERVE},
    {"TaskEnvironment.watch", Right::OBSERVE},
    {"TaskEnvironment.launch", Right::LAUNCH},
    {"TaskEnvironment.session", Right::OBSERVE},
    {"TaskEnvironment.exec", Right::EXEC},
    {"TaskEnvironment.dial", Right::FORWARD},
    {"TaskEnvironment.forward", Right::FORWARD},
    {"TaskEnvironment.reverse", Right::FORWARD},
    {"TaskEnvironment.readFile", Right::EXEC},
    {"TaskEnvironment.writeFile", Right::EXEC},
    {"TaskEnvironment.explain", Right::OBSERVE},
    {"TaskEnvironment.recheck", Right::OBSERVE},
    {"TaskEnvironment.stop", Right::STOP, WhenBusy::ANSWERED},
    {"TaskEnvironment.cleanup", Right::CLEANUP},
    {"TaskEnvironment.attenuate", Right::DELEGATE},
    {"TaskEnvironment.revoke", Right::DELEGATE, WhenBusy::ANSWERED},
    {"TaskEnvironment.rights", Right::OBSERVE},
    {"Forward.info", Right::OBSERVE},
    {"Forward.close", Right::FORWARD, WhenBusy::ANSWERED},
    {"Instance.output", Right::OBSERVE},
    {"Instance.stdin", Right::ATTACH},
    {"Instance.signal", Right::STOP, WhenBusy::ANSWERED},
    {"Instance.resize", Right::ATTACH},
    {"Instance.wait", Right::OBSERVE},
    {"Run.id", Right::OBSERVE},
    {"Session.info", Right::OBSERVE},
    {"Session.run", Right::OBSERVE},
    {"Session.start", Right::LAUNCH},
    {"Session.resume", Right::LAUNCH},
    {"Session.stop", Right::STOP, WhenBusy::ANSWERED},
    {"Session.saveProgress", Right::LAUNCH},
    {"Session.setConversationState", Right::LAUNCH},
    {"Session.setModel", Right::LAUNCH},
    {"Session.output", Right::OBSERVE},
    {"Subscription.stats", Right::NONE},
    {"ByteStream.write", Right::NONE, WhenBusy::ANSWERED},
    {"ByteStream.end", Right::NONE, WhenBusy::ANSWERED},
    {"Persistent.save", Right::NONE},
    {"HostKeyChallenge.describe", Right::NONE},
    {"HostKeyChallenge.accept", Right::NONE},
    {"Table.list", Right::NONE},
    {"Table.get", Right::NONE},
    {"Table.put", Right::NONE},
    {"Table.remove", Right::NONE},
    {"Table.watch", Right::NONE},
    {"Admin.executors", Right::NONE},
    {"Admin.profiles", Right::NONE},
    {"Admin.probe", Right::NONE},
    {"Admin.grants", Right::NONE},
    {"Admin.addPrincipal", Right::NONE},
    {"Admin.environment", Right::NONE},
    {"Admin.setDefaultExecutor", Right::NONE},
    {"Admin.setSecret", Right::NONE},
    {"Admin.allowSecret", Right::NONE},
    {"Admin.limits", Right::NONE},
    {"Admin.audit", Right::NONE},
    {"Admin.shutdown", Right::NONE, WhenBusy::ANSWERED},
    {"Admin.defaultExecutors", Right::NONE},
    {"Admin.secrets", Right::NONE},
    {"Admin.removeSecret", Right::NONE},
    {"Admin.disallowSecret", Right::NONE},
    {"Admin.rotateSecretKey", Right::NONE},
};

// The rule of a method; a method that is not in the table does not compile.
consteval MethodRule ruleOf(std::string_view method) {
  for (auto& rule: METHOD_RULES) {
    if (rule.method == method) return rule;
  }
  throw "this method has no rule in METHOD_RULES";
}

}  // namespace capstan
