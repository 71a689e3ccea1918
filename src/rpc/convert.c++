#include "rpc/convert.h"

#include "rpc/guard.h"

namespace capstan {

void write(rpc::Error::Builder out, const Problem& problem) {
  out.setCode(problem.code);
  out.setMessage(problem.message);
  if (problem.cause.size() > 0) out.setCause(problem.cause);
  if (problem.hint.size() > 0) out.setHint(problem.hint);
  if (problem.field.size() > 0) out.setField(problem.field);
  if (problem.source.size() > 0) out.setSource(problem.source);
  if (problem.upstreamCode.size() > 0) out.setUpstreamCode(problem.upstreamCode);
  out.setRetry(problem.retry);
  out.setRetryAfterMs(problem.retryAfterMs);
}

void write(rpc::ExitStatus::Builder out, const ExitStatus& status) {
  out.setAt(status.at);
  switch (status.kind) {
    case ExitStatus::Kind::CODE:
      out.setCode(status.code);
      break;
    case ExitStatus::Kind::SIGNAL:
      out.setSignal(status.signal);
      break;
    case ExitStatus::Kind::UNKNOWN:
      out.setUnknown();
      break;
  }
}

namespace {

kj::StringPtr statusWord(PrepareStep::Status status) {
  switch (status) {
    case PrepareStep::Status::PENDING:
      return "pending";
    case PrepareStep::Status::RUNNING:
      return "running";
    case PrepareStep::Status::COMPLETED:
      return "completed";
    case PrepareStep::Status::FAILED:
      return "failed";
    case PrepareStep::Status::SKIPPED:
      return "skipped";
  }
  return "unknown";
}

// The enums of domain and schema have the same members in the same order.
static_assert(static_cast<int>(EnvironmentState::CLEANING) ==
              static_cast<int>(rpc::EnvironmentState::CLEANING));
static_assert(static_cast<int>(EnvironmentState::RECONNECTING) ==
              static_cast<int>(rpc::EnvironmentState::RECONNECTING));
static_assert(static_cast<int>(SessionState::RECONNECTING) ==
              static_cast<int>(rpc::SessionState::RECONNECTING));
static_assert(static_cast<int>(SessionState::LOST) == static_cast<int>(rpc::SessionState::LOST));
static_assert(static_cast<int>(HealthAxis::UNAVAILABLE) ==
              static_cast<int>(rpc::Health::Axis::UNAVAILABLE));
static_assert(static_cast<int>(HealthAxis::RETAINED) ==
              static_cast<int>(rpc::Health::Axis::RETAINED));
static_assert(static_cast<int>(ConversationHealth::UNAVAILABLE) ==
              static_cast<int>(rpc::Health::Conversation::UNAVAILABLE));
static_assert(static_cast<int>(ConversationHealth::FRESH) ==
              static_cast<int>(rpc::Health::Conversation::FRESH));
static_assert(static_cast<int>(Origin::OTHER) == static_cast<int>(rpc::Origin::OTHER));

Problem unsupported(kj::StringPtr field) {
  return Problem(ErrorCode::UNSUPPORTED,
                 kj::str("this version of Capstan does not carry out ", field))
      .at(kj::str(field))
      .advise(kj::str("leave it out"));
}

}  // namespace

Result<Variable> readVariable(rpc::Variable::Reader in, kj::StringPtr field) {
  Variable variable;
  variable.key = copy(in.getKey());
  switch (in.which()) {
    case rpc::Variable::LITERAL:
      variable.literal = copy(in.getLiteral());
      break;
    case rpc::Variable::SECRET:
      variable.secret = copy(in.getSecret());
      if (variable.secret.size() == 0) {
        return Problem(ErrorCode::INVALID_ARGUMENT, kj::str("the secret's name is empty"))
            .at(kj::str(field));
      }
      break;
    default:
      return Problem(ErrorCode::INVALID_ARGUMENT,
                     kj::str("the variable's value is of an unknown kind"))
          .at(kj::str(field));
  }
  // An origin that this version does not know counts as `other`: the strongest tier.
  auto origin = static_cast<uint16_t>(in.getOrigin());
  variable.origin =
      origin <= static_cast<uint16_t>(Origin::OTHER) ? static_cast<Origin>(origin) : Origin::OTHER;
  variable.otherOrigin = copy(in.getOtherOrigin());
  variable.repository = copy(in.getRepository());
  variable.tenantId = copy(in.getTenantId());
  return kj::mv(variable);
}

namespace {

Result<WorkspaceSpec> readWorkspace(rpc::WorkspaceSpec::Reader in) {
  WorkspaceSpec spec;
  switch (in.which()) {
    case rpc::WorkspaceSpec::DEFAULT:
      break;
    case rpc::WorkspaceSpec::DIRECTORY:
      spec.kind = WorkspaceSpec::Kind::DIRECTORY;
      spec.directory = copy(in.getDirectory());
      break;
    case rpc::WorkspaceSpec::REPOSITORIES:
      spec.kind = WorkspaceSpec::Kind::REPOSITORIES;
      spec.repositories = KJ_MAP(each, in.getRepositories()) {
        return Repository{copy(each.getPath()), copy(each.getUrl()), copy(each.getRef())};
      };
      break;
    default:
      return unsupported("spec.workspace");  // A kind of a later version.
  }
  spec.sourceRoots = KJ_MAP(root, in.getSourceRoots())->kj::String { return copy(root); };
  spec.reuseRequired = in.getReuseRequired();
  return kj::mv(spec);
}

}  // namespace

void write(rpc::PrepareStep::Builder out, const PrepareStep& step) {
  out.setName(step.name);
  out.setCommand(step.command);
  out.setStatus(statusWord(step.status));
  out.setOutput(step.output);
  out.setError(step.error);
  out.setWarning(step.warning);
  out.setWarningDetail(step.warningDetail);
  out.setStartedAt(step.startedAt);
  out.setEndedAt(step.endedAt);
}

void write(rpc::SessionInfo::Builder out, const SessionStatus& status) {
  out.setId(status.id);
  out.setState(static_cast<rpc::SessionState>(status.state));
  out.setRunId(status.runId);
  if (status.command.size() > 0) out.setAgent(status.command[0]);
  auto command = out.initCommand(status.command.size());
  for (auto i: kj::indices(status.command))
    command.set(i, status.command[i]);
  out.setStartedAt(status.startedAt);
  KJ_IF_MAYBE (exit, status.exit) {
    write(out.initExit(), *exit);
  }
  out.setDescendants(status.descendants);
  out.setPid(status.pid);
  out.setOutputBegin(status.outputBegin);
  out.setOutputEnd(status.outputEnd);
  KJ_IF_MAYBE (problem, status.lastError) {
    write(out.initLastError(), *problem);
  }
}

namespace {

void write(rpc::Episode::Builder out, const EpisodeRecord& episode) {
  out.setId(episode.id);
  out.setGeneration(episode.generation);
  out.setOutcome(episodeOutcomeName(episode.outcome));
  capstan::write(out.initCause(), episode.cause);
  auto blockers = out.initBlockers(episode.blockers.size());
  for (auto i: kj::indices(episode.blockers))
    capstan::write(blockers[i], episode.blockers[i]);
  out.setStartedAt(episode.startedAt);
  out.setEndedAt(episode.endedAt);
  auto affected = out.initAffected(episode.affected.size());
  for (auto i: kj::indices(episode.affected))
    affected.set(i, episode.affected[i]);
}

}  // namespace

void write(rpc::EnvironmentStatus::Builder out, const EnvironmentStatus& status) {
  out.setId(status.id);
  out.setTaskId(status.taskId);
  out.setTitle(status.title);
  out.setTenantId(status.tenantId);
  out.setState(static_cast<rpc::EnvironmentState>(status.state));
  out.setExecutorId(status.executorId);
  out.setExecutorType(status.executorType);
  out.setRuntime(status.runtime);
  out.setProfileId(status.profileId);
  out.setWorkspace(status.workspace);
  out.setCreatedAt(status.createdAt);
  out.setChangedAt(status.changedAt);
  auto sessions = out.initSessions(status.sessions.size());
  for (auto i: kj::indices(status.sessions))
    write(sessions[i], status.sessions[i]);
  auto steps = out.initLastSteps(status.lastSteps.size());
  for (auto i: kj::indices(status.lastSteps))
    write(steps[i], status.lastSteps[i]);
  KJ_IF_MAYBE (problem, status.lastError) {
    write(out.initLastError(), *problem);
  }
  auto labels = out.initLabels(status.labels.size());
  for (auto i: kj::indices(status.labels)) {
    labels[i].setKey(status.labels[i].key);
    labels[i].setValue(status.labels[i].value);
  }
  auto health = out.initHealth();
  health.setExecutor(static_cast<rpc::Health::Axis>(status.health.executor));
  health.setWorkspace(static_cast<rpc::Health::Axis>(status.health.workspace));
  health.setConversation(static_cast<rpc::Health::Conversation>(status.health.conversation));
  auto episodes = out.initEpisodes(status.episodes.size());
  for (auto i: kj::indices(status.episodes))
    write(episodes[i], status.episodes[i]);
  out.setSeq(status.seq);
}

void write(rpc::RuntimeStatus::Builder out, const RuntimeStatus& status) {
  out.setRuntime(status.runtime);
  out.setBuiltIn(status.builtIn);
  out.setConfigured(status.configured);
  out.setAvailable(status.builtIn && status.configured);
  out.setHealthy(status.healthy);
  KJ_IF_MAYBE (reason, status.reason) {
    write(out.initReason(), *reason);
  }
  out.setVersion(status.version);
  out.setCheckedAt(status.checkedAt);
}

Result<LaunchSpec> readLaunch(rpc::LaunchSpec::Reader in) {
  if (in.hasAgent()) return unsupported("spec.agent");
  if (in.getApprovedSecretKeys().size() > 0) return unsupported("spec.approvedSecretKeys");
  LaunchSpec spec;
  spec.requestId = kj::heapArray<kj::byte>(in.getRequestId());
  spec.command = KJ_MAP(word, in.getCommand())->kj::String { return copy(word); };
  spec.resumeCommand = KJ_MAP(word, in.getResumeCommand())->kj::String { return copy(word); };
  auto variables = in.getVariables();
  auto builder = kj::heapArrayBuilder<Variable>(variables.size());
  for (auto i: kj::indices(variables)) {
    auto variable = readVariable(variables[i], kj::str("spec.variables[", i, "]"));
    if (variable.is<Problem>()) return kj::mv(variable.get<Problem>());
    builder.add(kj::mv(variable.get<Variable>()));
  }
  spec.variables = builder.finish();
  spec.workingDirectory = copy(in.getWorkingDirectory());
  if (in.hasTerminal()) {
    auto terminal = in.getTerminal();
    Terminal value;
    value.columns = terminal.getColumns();
    value.rows = terminal.getRows();
    value.term = copy(terminal.getTerm());
    spec.terminal = kj::mv(value);
  }
  spec.pauseWhenFull = in.getPauseWhenFull();
  spec.wait = in.getWait();
  spec.start = in.getStart();
  if (in.getDeadlineMs() > 0) {
    constexpr uint64_t DAY_MS = 86'400'000;
    spec.deadline = kj::min(in.getDeadlineMs(), DAY_MS) * kj::MILLISECONDS;
  }
  return kj::mv(spec);
}

Result<EnvironmentSpec> readEnvironment(rpc::Supervisor::EnvironmentSpec::Reader in) {
  EnvironmentSpec spec;
  spec.requestId = kj::heapArray<kj::byte>(in.getRequestId());
  spec.taskId = copy(in.getTaskId());
  spec.title = copy(in.getTitle());
  spec.tenantId = copy(in.getTenantId());
  spec.executor = copy(in.getExecutorId());
  spec.profile = copy(in.getProfileId());
  if (in.getMetadataJson().size() > 0) return unsupported("spec.metadataJson");
  auto workspace = readWorkspace(in.getWorkspace());
  if (workspace.is<Problem>()) return kj::mv(workspace.get<Problem>());
  spec.workspace = kj::mv(workspace.get<WorkspaceSpec>());
  for (auto label: in.getLabels()) {
    spec.labels.add(Label{copy(label.getKey()), copy(label.getValue())});
  }
  return kj::mv(spec);
}

}  // namespace capstan
