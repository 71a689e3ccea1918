#include "store/stored-values.h"

#include "stored.capnp.h"

#include <capnp/message.h>
#include <capnp/serialize-packed.h>
#include <kj/io.h>

namespace capstan {

namespace {

// Rows are ours and bounded when they are written; this bounds what a damaged one can cost.
capnp::ReaderOptions readerOptions() { return {.traversalLimitInWords = 4u << 20}; }

kj::Array<kj::byte> pack(capnp::MessageBuilder& message) {
  kj::VectorOutputStream out;
  capnp::writePackedMessage(out, message);
  return kj::heapArray(out.getArray());
}

template <typename Root>
class Unpacked {
public:
  explicit Unpacked(kj::ArrayPtr<const kj::byte> bytes): in(bytes) {
    // No octets are a message without fields.
    if (bytes.size() > 0) reader.emplace(in, readerOptions());
  }
  typename Root::Reader root() {
    KJ_IF_MAYBE (r, reader) {
      return r->template getRoot<Root>();
    }
    return typename Root::Reader();
  }

private:
  kj::ArrayInputStream in;
  kj::Maybe<capnp::PackedMessageReader> reader;
};

template <typename List>
void setPairs(List list, kj::ArrayPtr<const Label> pairs) {
  for (size_t i = 0; i < pairs.size(); ++i) {
    list[i].setKey(pairs[i].key);
    list[i].setValue(pairs[i].value);
  }
}

template <typename List>
void setVariables(List list, kj::ArrayPtr<const Variable> variables) {
  for (size_t i = 0; i < variables.size(); ++i) {
    auto& from = variables[i];
    auto to = list[i];
    to.setKey(from.key);
    to.setLiteral(from.literal);
    to.setSecret(from.secret);
    to.setOrigin(static_cast<uint16_t>(from.origin));
    to.setOtherOrigin(from.otherOrigin);
    to.setRepository(from.repository);
    to.setTenantId(from.tenantId);
  }
}

kj::Array<Variable> getVariables(capnp::List<stored::Variable>::Reader list) {
  return KJ_MAP(from, list) {
    KJ_REQUIRE(from.getOrigin() <= static_cast<uint16_t>(Origin::OTHER));
    Variable to;
    to.key = kj::str(from.getKey());
    to.literal = kj::str(from.getLiteral());
    to.secret = kj::str(from.getSecret());
    to.origin = static_cast<Origin>(from.getOrigin());
    to.otherOrigin = kj::str(from.getOtherOrigin());
    to.repository = kj::str(from.getRepository());
    to.tenantId = kj::str(from.getTenantId());
    return to;
  };
}

void setWorkspace(stored::EnvironmentSpec::Builder to, const WorkspaceSpec& from) {
  to.setHasDirectory(from.kind == WorkspaceSpec::Kind::DIRECTORY);
  to.setDirectory(from.directory);
  auto repositories = to.initRepositories(from.repositories.size());
  for (auto i: kj::indices(from.repositories)) {
    repositories[i].setPath(from.repositories[i].path);
    repositories[i].setUrl(from.repositories[i].url);
    repositories[i].setRef(from.repositories[i].ref);
  }
  auto roots = to.initSourceRoots(from.sourceRoots.size());
  for (auto i: kj::indices(from.sourceRoots))
    roots.set(i, from.sourceRoots[i]);
  to.setReuseRequired(from.reuseRequired);
}

WorkspaceSpec getWorkspace(stored::EnvironmentSpec::Reader from) {
  WorkspaceSpec to;
  if (from.getHasDirectory()) {
    to.kind = WorkspaceSpec::Kind::DIRECTORY;
    to.directory = kj::str(from.getDirectory());
  } else if (from.getRepositories().size() > 0) {
    to.kind = WorkspaceSpec::Kind::REPOSITORIES;
    to.repositories = KJ_MAP(each, from.getRepositories()) {
      return Repository{kj::str(each.getPath()), kj::str(each.getUrl()), kj::str(each.getRef())};
    };
  }
  to.sourceRoots = KJ_MAP(root, from.getSourceRoots()) { return kj::str(root); };
  to.reuseRequired = from.getReuseRequired();
  return to;
}

}  // namespace

kj::Array<kj::byte> encodePairs(kj::ArrayPtr<const Label> pairs) {
  capnp::MallocMessageBuilder message;
  setPairs(message.initRoot<stored::Pairs>().initEntries(pairs.size()), pairs);
  return pack(message);
}

kj::Array<Label> decodePairs(kj::ArrayPtr<const kj::byte> bytes) {
  Unpacked<stored::Pairs> message(bytes);
  return KJ_MAP(pair, message.root().getEntries()) {
    return Label{kj::str(pair.getKey()), kj::str(pair.getValue())};
  };
}

kj::Array<kj::byte> encodeWords(kj::ArrayPtr<const kj::String> words) {
  capnp::MallocMessageBuilder message;
  auto list = message.initRoot<stored::Words>().initEntries(words.size());
  for (size_t i = 0; i < words.size(); ++i)
    list.set(i, words[i]);
  return pack(message);
}

kj::Array<kj::String> decodeWords(kj::ArrayPtr<const kj::byte> bytes) {
  Unpacked<stored::Words> message(bytes);
  return KJ_MAP(word, message.root().getEntries()) { return kj::str(word); };
}

kj::Array<kj::byte> encodeVariables(kj::ArrayPtr<const Variable> variables) {
  capnp::MallocMessageBuilder message;
  setVariables(message.initRoot<stored::Variables>().initEntries(variables.size()), variables);
  return pack(message);
}

kj::Array<Variable> decodeVariables(kj::ArrayPtr<const kj::byte> bytes) {
  Unpacked<stored::Variables> message(bytes);
  return getVariables(message.root().getEntries());
}

kj::Array<kj::byte> encodeEnvironmentSpec(const EnvironmentSpec& spec) {
  capnp::MallocMessageBuilder message;
  auto to = message.initRoot<stored::EnvironmentSpec>();
  to.setTaskId(spec.taskId);
  to.setTitle(spec.title);
  to.setTenantId(spec.tenantId);
  to.setExecutor(spec.executor);
  to.setProfile(spec.profile);
  setWorkspace(to, spec.workspace);
  setPairs(to.initLabels(spec.labels.size()), spec.labels);
  return pack(message);
}

EnvironmentSpec decodeEnvironmentSpec(kj::ArrayPtr<const kj::byte> bytes) {
  Unpacked<stored::EnvironmentSpec> message(bytes);
  auto from = message.root();
  EnvironmentSpec spec;
  spec.taskId = kj::str(from.getTaskId());
  spec.title = kj::str(from.getTitle());
  spec.tenantId = kj::str(from.getTenantId());
  spec.executor = kj::str(from.getExecutor());
  spec.profile = kj::str(from.getProfile());
  spec.workspace = getWorkspace(from);
  for (auto label: from.getLabels()) {
    spec.labels.add(Label{kj::str(label.getKey()), kj::str(label.getValue())});
  }
  return spec;
}

kj::Array<kj::byte> encodeSteps(kj::ArrayPtr<const PrepareStep> steps) {
  if (steps.size() == 0) return nullptr;
  capnp::MallocMessageBuilder message;
  auto list = message.initRoot<stored::Steps>().initEntries(steps.size());
  for (auto i: kj::indices(steps)) {
    list[i].setName(steps[i].name);
    list[i].setCommand(steps[i].command);
    list[i].setStatus(static_cast<uint16_t>(steps[i].status));
    list[i].setOutput(steps[i].output);
    list[i].setError(steps[i].error);
    list[i].setWarning(steps[i].warning);
    list[i].setWarningDetail(steps[i].warningDetail);
    list[i].setStartedAt(steps[i].startedAt);
    list[i].setEndedAt(steps[i].endedAt);
  }
  return pack(message);
}

kj::Array<kj::byte> encodeEvidence(kj::ArrayPtr<const Problem> problems) {
  if (problems.size() == 0) return nullptr;
  capnp::MallocMessageBuilder message;
  auto list = message.initRoot<stored::EvidenceList>().initEntries(problems.size());
  for (auto i: kj::indices(problems)) {
    list[i].setCode(static_cast<uint16_t>(problems[i].code));
    list[i].setMessage(problems[i].message);
    list[i].setSource(problems[i].source);
    list[i].setUpstreamCode(problems[i].upstreamCode);
  }
  return pack(message);
}

kj::Vector<Problem> decodeEvidence(kj::ArrayPtr<const kj::byte> bytes) {
  Unpacked<stored::EvidenceList> message(bytes);
  kj::Vector<Problem> problems;
  for (auto from: message.root().getEntries()) {
    Problem problem(static_cast<ErrorCode>(from.getCode()), kj::str(from.getMessage()));
    problem.source = kj::str(from.getSource());
    problem.upstreamCode = kj::str(from.getUpstreamCode());
    problems.add(kj::mv(problem));
  }
  return problems;
}

kj::Vector<PrepareStep> decodeSteps(kj::ArrayPtr<const kj::byte> bytes) {
  Unpacked<stored::Steps> message(bytes);
  kj::Vector<PrepareStep> steps;
  for (auto from: message.root().getEntries()) {
    PrepareStep step;
    step.name = kj::str(from.getName());
    step.command = kj::str(from.getCommand());
    step.status = static_cast<PrepareStep::Status>(from.getStatus());
    step.output = kj::str(from.getOutput());
    step.error = kj::str(from.getError());
    step.warning = kj::str(from.getWarning());
    step.warningDetail = kj::str(from.getWarningDetail());
    step.startedAt = from.getStartedAt();
    step.endedAt = from.getEndedAt();
    steps.add(kj::mv(step));
  }
  return steps;
}

kj::Array<kj::byte> encodeLaunchSpec(const LaunchSpec& spec) {
  capnp::MallocMessageBuilder message;
  auto to = message.initRoot<stored::LaunchSpec>();
  auto command = to.initCommand(spec.command.size());
  for (size_t i = 0; i < spec.command.size(); ++i)
    command.set(i, spec.command[i]);
  setVariables(to.initVariables(spec.variables.size()), spec.variables);
  to.setWorkingDirectory(spec.workingDirectory);
  KJ_IF_MAYBE (terminal, spec.terminal) {
    to.setHasTerminal(true);
    to.setColumns(terminal->columns);
    to.setRows(terminal->rows);
    to.setTerm(terminal->term);
  }
  to.setPauseWhenFull(spec.pauseWhenFull);
  auto again = to.initResumeCommand(spec.resumeCommand.size());
  for (size_t i = 0; i < spec.resumeCommand.size(); ++i)
    again.set(i, spec.resumeCommand[i]);
  return pack(message);
}

LaunchSpec decodeLaunchSpec(kj::ArrayPtr<const kj::byte> bytes) {
  Unpacked<stored::LaunchSpec> message(bytes);
  auto from = message.root();
  LaunchSpec spec;
  spec.command = KJ_MAP(word, from.getCommand()) { return kj::str(word); };
  spec.variables = getVariables(from.getVariables());
  spec.workingDirectory = kj::str(from.getWorkingDirectory());
  if (from.getHasTerminal()) {
    spec.terminal = Terminal{from.getColumns(), from.getRows(), kj::str(from.getTerm())};
  }
  spec.pauseWhenFull = from.getPauseWhenFull();
  spec.resumeCommand = KJ_MAP(word, from.getResumeCommand()) { return kj::str(word); };
  return spec;
}

int problemCode(const kj::Maybe<Problem>& problem) {
  KJ_IF_MAYBE (p, problem) {
    return static_cast<int>(p->code);
  }
  return static_cast<int>(ErrorCode::NONE);
}

kj::StringPtr problemMessage(const kj::Maybe<Problem>& problem) {
  KJ_IF_MAYBE (p, problem) {
    return p->message;
  }
  return ""_kj;
}

kj::Maybe<Problem> toProblem(int64_t code, kj::String message) {
  if (code == static_cast<int>(ErrorCode::NONE)) return nullptr;
  return Problem(static_cast<ErrorCode>(code), kj::mv(message));
}

Problem rowNotFound(kj::StringPtr what, kj::StringPtr id) {
  return Problem(ErrorCode::NOT_FOUND, kj::str("no ", what, " '", id, "'"));
}

Problem rowChanged(kj::StringPtr what, kj::StringPtr id, uint64_t expected, uint64_t actual) {
  return Problem(ErrorCode::WRONG_STATE, kj::str(what, " '", id, "' has changed since it was read"))
      .because(kj::str("version ", expected, " was expected, it is at ", actual))
      .advise(kj::str("read it again, then decide"))
      .retryable(RetryHint::AFTER_REFRESH);
}

}  // namespace capstan
