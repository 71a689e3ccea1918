#include "codec/daemon-config.h"

#include "support/test.h"

#include <fstream>
#include <iterator>
#include <string>

namespace capstan {

namespace {

DaemonConfig good(kj::StringPtr text) {
  auto result = readDaemonConfig("c.yaml", text);
  if (result.is<Problem>()) FAIL(kj::str(result.get<Problem>()).cStr());
  return kj::mv(result.get<DaemonConfig>());
}

Problem bad(kj::StringPtr text) {
  auto result = readDaemonConfig("c.yaml", text);
  INFO(text.cStr());
  REQUIRE(result.is<Problem>());
  CHECK(result.get<Problem>().code == ErrorCode::INVALID_ARGUMENT);
  return kj::mv(result.get<Problem>());
}

kj::String refusal(kj::StringPtr text) { return kj::str(bad(text)); }

}  // namespace

TEST_CASE("an empty file is the defaults") {
  for (auto text: {""_kj, "# nothing\n"_kj, "agent:\nlimits:\n"_kj, "---\n"_kj, "{}"_kj}) {
    CHECK(writeDaemonConfig(good(text)) == writeDaemonConfig(DaemonConfig()));
  }
}

TEST_CASE("every kind of key is read") {
  auto config = good(R"(state_dir: /var/lib/capstan
socket: "/run/capstan/capstan.sock"
agentctl_dir: /usr/lib/capstan
local_admin: false
log_format: json
agent:
  docker: {enabled: true}
  standalone:
    host: localhost
    port: 0
    socket: /run/capstan/helpers
deadlines:
  connect: 500ms
  stop_grace: 3s
  prepare: 90min
  launch: '2h'
limits:
  output_spool_bytes: 1GiB
  command_bytes: 65536B
  text_bytes: 8KiB
  variables: 7
)");
  CHECK(KJ_ASSERT_NONNULL(config.stateDirectory) == "/var/lib/capstan");
  CHECK(KJ_ASSERT_NONNULL(config.socket) == "/run/capstan/capstan.sock");
  CHECK(KJ_ASSERT_NONNULL(config.helperDirectory) == "/usr/lib/capstan");
  CHECK_FALSE(config.localAdmin);
  CHECK(config.logFormat == LogFormat::JSON);
  CHECK(config.dockerEnabled);
  CHECK(KJ_ASSERT_NONNULL(config.standaloneSocketDirectory) == "/run/capstan/helpers");
  auto& deadlines = config.limits.deadlines;
  CHECK(deadlines.connect == 500 * kj::MILLISECONDS);
  CHECK(deadlines.stopGrace == 3 * kj::SECONDS);
  CHECK(deadlines.prepare == 90 * kj::MINUTES);
  CHECK(deadlines.launch == 2 * kj::HOURS);
  CHECK(deadlines.control == Deadlines().control);
  CHECK(deadlines.health == Deadlines().health);
  CHECK(config.limits.outputSpoolBytes == 1u << 30);
  CHECK(config.limits.commandBytes == 65536);
  CHECK(config.limits.textBytes == 8192);
  CHECK(config.limits.variables == 7);
  CHECK(config.limits.labels == Limits().labels);
}

TEST_CASE("an unknown key is refused with its place and the nearest known one") {
  CHECK(refusal("agent:\n  dockr:\n    enabled: true\n") ==
        "c.yaml:2:3: unknown key 'agent.dockr' (did you mean 'agent.docker'?)");
  CHECK(refusal("limits:\n  outputSpoolBytes: 1MiB\n") ==
        "c.yaml:2:3: unknown key 'limits.outputSpoolBytes' (did you mean "
        "'limits.output_spool_bytes'?)");
  CHECK(refusal("limits:\n  output-spool-bytes: 1MiB\n") ==
        "c.yaml:2:3: unknown key 'limits.output-spool-bytes' (did you mean "
        "'limits.output_spool_bytes'?)");
  CHECK(refusal("agent:\n  docker:\n    host: tcp://x\n") ==
        "c.yaml:3:5: unknown key 'agent.docker.host' (known here: enabled)");
  CHECK(refusal("\nhttp: 1\n") ==
        "c.yaml:2:1: unknown key 'http' (known here: state_dir, socket, agentctl_dir, local_admin, "
        "log_format, agent, deadlines, limits)");
  CHECK(refusal("agent.docker.enabled: true\n") ==
        "c.yaml:1:1: unknown key 'agent.docker.enabled' (one line for each part: what is behind a "
        "dot stands below, indented)");
  CHECK(refusal("agent: {docker.enabled: true}") ==
        "c.yaml:1:9: unknown key 'agent.docker.enabled' (one line for each part: what is behind a "
        "dot stands below, indented)");
  CHECK(bad("agent: {dockr: 1}").field == "agent.dockr");
  CHECK(refusal("\"\\e[2J\": 1") ==
        "c.yaml:1:1: unknown key '\\u001b[2J' (known here: state_dir, socket, agentctl_dir, "
        "local_admin, log_format, agent, deadlines, limits)");
}

TEST_CASE("keys of earlier designs are refused with what replaced them") {
  CHECK(refusal("agent:\n  runtime: docker\n") ==
        "c.yaml:2:3: agent.runtime is gone: there is no runtime for all tasks; each task chooses "
        "its executor, and that one's type its runtime (remove the line, and choose with capstan "
        "run --executor)");
  CHECK(refusal("agent:\n  standalone:\n    enabled: true\n") ==
        "c.yaml:3:5: agent.standalone.enabled is gone: the standalone runtime is always there; "
        "tasks leave it alone by choosing another executor (remove the line)");
  CHECK(bad("agent: {runtime: x}").field == "agent.runtime");
}

TEST_CASE("a repeated key is refused with its place") {
  CHECK(refusal("limits:\n  labels: 1\n  labels: 2\n") ==
        "c.yaml:3:3: the key 'labels' is repeated (it stands in line 2 already: keep one of them)");
}

TEST_CASE("a value of the wrong kind is refused with its place and what belongs there") {
  struct Row {
    kj::StringPtr text, said;
  };
  for (
      auto row: {
          Row{"agent: {docker: {enabled: yes}}",
              "c.yaml:1:27: agent.docker.enabled: 'yes' is not true or false (it takes true or "
              "false)"},
          Row{"local_admin: 'false'",
              "c.yaml:1:14: local_admin: 'false' in quotes is a text, not true or false (it takes "
              "true or false)"},
          Row{"local_admin:",
              "c.yaml:1:13: local_admin: there is no value (it takes true or false)"},
          Row{"log_format: yaml",
              "c.yaml:1:13: log_format: 'yaml' is not text or json (it takes text or json)"},
          Row{"state_dir: here",
              "c.yaml:1:12: state_dir: 'here' is not an absolute path (it takes an absolute path "
              "of at most 4095 octets)"},
          Row{"limits:\n  labels: many\n",
              "c.yaml:2:11: limits.labels: 'many' is no whole number (it takes a whole number, 1 "
              "to 1024)"},
          Row{"limits: {labels: '8'}",
              "c.yaml:1:18: limits.labels: '8' in quotes is a text, not a number (it takes a whole "
              "number, 1 to 1024)"},
          Row{"limits: {labels: 1.5}",
              "c.yaml:1:18: limits.labels: '1.5' is no whole number (it takes a whole number, 1 to "
              "1024)"},
          Row{"limits: {labels: 64MiB}",
              "c.yaml:1:18: limits.labels: '64MiB' is no whole number (it takes a whole number, 1 "
              "to 1024)"},
          Row{"limits: {labels: [1]}",
              "c.yaml:1:18: limits.labels: a list stands here (it takes a whole number, 1 to "
              "1024)"},
          Row{"limits: {labels: {most: 1}}",
              "c.yaml:1:18: limits.labels: further keys stand here (it takes a whole number, 1 to "
              "1024)"},
          Row{"agent: docker",
              "c.yaml:1:8: agent: keys belong here, but a single value stands here (known here: "
              "docker, standalone)"},
          Row{"agent:\n  docker: [enabled]\n",
              "c.yaml:2:11: agent.docker: keys belong here, but a list stands here (known here: "
              "enabled)"},
          Row{"- agent\n",
              "c.yaml:1:1: keys belong here, but a list stands here (known here: state_dir, "
              "socket, agentctl_dir, local_admin, log_format, agent, deadlines, limits)"},
      }) {
    INFO(row.text.cStr());
    CHECK(refusal(row.text) == row.said);
  }
}

TEST_CASE("a quantity needs a whole number, a known unit and its range") {
  auto deadline = [](kj::StringPtr value) {
    return refusal(kj::str("deadlines:\n  connect: ", value, "\n"));
  };
  auto said = [](kj::StringPtr fault) {
    return kj::str("c.yaml:2:12: deadlines.connect: ", fault,
                   " (it takes a duration, 100ms to 10min)");
  };
  CHECK(deadline("30") == said("'30' has no unit: ms, s, min, h"));
  CHECK(deadline("30m") == said("'m' is no unit: ms, s, min, h"));
  CHECK(deadline("30 s") == said("' s' is no unit: ms, s, min, h"));
  CHECK(deadline("1.5s") == said("'.5s' is no unit: ms, s, min, h"));
  CHECK(deadline("-1s") == said("'-1s' is no whole number"));
  CHECK(deadline("forever") == said("'forever' is no whole number"));
  CHECK(deadline("0s") == said("'0s' is out of its range, 100ms to 10min"));
  CHECK(deadline("99ms") == said("'99ms' is out of its range, 100ms to 10min"));
  CHECK(deadline("601s") == said("'601s' is out of its range, 100ms to 10min"));
  // 2^64, 2^64 / 3600000 + 1 hours: nothing wraps around.
  CHECK(deadline("18446744073709551616ms") ==
        said("'18446744073709551616ms' is out of its range, 100ms to 10min"));
  CHECK(deadline("5124095576031h") == said("'5124095576031h' is out of its range, 100ms to 10min"));
  CHECK(refusal("limits: {text_bytes: 4KB}") ==
        "c.yaml:1:22: limits.text_bytes: 'KB' is no unit: B, KiB, MiB, GiB (it takes a size, 64B "
        "to 64KiB)");
  CHECK(
      refusal("limits: {text_bytes: 4096}") ==
      "c.yaml:1:22: limits.text_bytes: '4096' has no unit: B, KiB, MiB, GiB (it takes a size, 64B "
      "to 64KiB)");
  CHECK(refusal("limits: {text_bytes: 17179869185GiB}") ==
        "c.yaml:1:22: limits.text_bytes: '17179869185GiB' is out of its range, 64B to 64KiB (it "
        "takes a size, 64B to 64KiB)");
  CHECK(
      refusal("limits: {labels: 0}") ==
      "c.yaml:1:18: limits.labels: '0' is out of its range, 1 to 1024 (it takes a whole number, 1 "
      "to 1024)");
  CHECK(refusal("limits: {labels: 99999999999999999999}") ==
        "c.yaml:1:18: limits.labels: '99999999999999999999' is out of its range, 1 to 1024 (it "
        "takes a whole number, 1 to 1024)");
  CHECK(good("deadlines: {connect: 100ms}").limits.deadlines.connect == 100 * kj::MILLISECONDS);
  CHECK(good("deadlines: {connect: 10min}").limits.deadlines.connect == 10 * kj::MINUTES);
}

TEST_CASE("a network address for the local helper cannot be honoured") {
  CHECK(refusal("agent:\n  standalone:\n    port: 9999\n") ==
        "c.yaml:3:11: agent.standalone.port: '9999' cannot be honoured: the helper of this machine "
        "listens on a unix socket, never on a network address (it takes 0)");
  CHECK(refusal("agent: {standalone: {host: 0.0.0.0}}") ==
        "c.yaml:1:28: agent.standalone.host: '0.0.0.0' cannot be honoured: the helper of this "
        "machine listens on a unix socket, never on a network address (it takes localhost)");
  auto folder = kj::str("/", kj::repeat('r', 68));
  CHECK(
      refusal(kj::str("agent: {standalone: {socket: ", folder, "}}")) ==
      "c.yaml:1:30: agent.standalone.socket: the path has 69 octets (it takes an absolute path of "
      "at most 68 octets)");
}

TEST_CASE("what is written reads back the same") {
  auto standard = writeDaemonConfig(DaemonConfig());
  CHECK(standard == R"(local_admin: true
log_format: text
agent:
  docker:
    enabled: false
  standalone:
    host: localhost
    port: 0
deadlines:
  connect: 30s
  handshake: 10s
  helper_start: 30s
  prepare: 10min
  launch: 20min
  stop_grace: 10s
  cleanup: 2min
  control: 30s
  output_kept: 168h
  health: 15s
  loss_grace: 15s
  inspection: 5s
limits:
  output_spool_bytes: 64MiB
  command_words: 4096
  command_bytes: 1MiB
  variables: 1024
  environments: 10000
  sessions_per_environment: 1000
  execs_per_environment: 256
  watchers: 256
  labels: 64
  text_bytes: 4KiB
  list_page: 500
  executors: 500
  profiles: 2000
  tenant_defaults: 1000
  config_bytes: 320KiB
  script_bytes: 256KiB
  catalog_bytes: 64MiB
  secrets: 10000
  launch_secret_bytes: 4MiB
  repositories: 32
)");
  CHECK(writeDaemonConfig(good(standard)) == standard);

  auto config = good(R"(socket: "/tmp/a \"b\"\n: # ä"
agent: {docker: {enabled: true}, standalone: {socket: /s}}
deadlines: {launch: 90s, stop_grace: 1500ms}
limits: {text_bytes: 1025B}
)");
  auto written = writeDaemonConfig(config);
  CHECK(written.startsWith("socket: \"/tmp/a \\\"b\\\"\\x0a: # ä\"\nlocal_admin: true\n"));
  for (auto line: {"    enabled: true\n", "    socket: \"/s\"\n", "  launch: 90s\n",
                   "  stop_grace: 1500ms\n", "  text_bytes: 1025B\n"}) {
    CHECK(std::string(written.cStr()).find(line) != std::string::npos);
  }
  CHECK(writeDaemonConfig(good(written)) == written);
}

TEST_CASE("the operations page lists every key as the code knows it") {
  std::ifstream file(DOCS "/operations.md");
  std::string page(std::istreambuf_iterator<char>(file), {});
  std::string from = "<!-- keys -->\n", to = "<!-- /keys -->";
  auto start = page.find(from), end = page.find(to);
  REQUIRE((start != std::string::npos && end != std::string::npos));
  start += from.size();
  CHECK(page.substr(start, end - start) == daemonConfigTable().cStr());  // Else: copy it there.
}

}  // namespace capstan
