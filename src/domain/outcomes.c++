#include "domain/outcomes.h"

namespace capstan {

SessionState sessionStateAfter(RunOutcome::Kind kind) {
  switch (kind) {
    case RunOutcome::Kind::EXITED:
      return SessionState::EXITED;
    case RunOutcome::Kind::STOPPED:
    case RunOutcome::Kind::CANCELLED:
      return SessionState::STOPPED;
    case RunOutcome::Kind::FAILED:
      return SessionState::FAILED;
    case RunOutcome::Kind::LOST:
      break;
  }
  return SessionState::LOST;
}

RunningStatus runningStatusAfter(RunOutcome::Kind kind) {
  switch (kind) {
    case RunOutcome::Kind::EXITED:
      return RunningStatus::COMPLETED;
    case RunOutcome::Kind::STOPPED:
    case RunOutcome::Kind::CANCELLED:
      return RunningStatus::STOPPED;
    case RunOutcome::Kind::FAILED:
    case RunOutcome::Kind::LOST:
      break;
  }
  return RunningStatus::FAILED;
}

namespace {

bool isSameVariable(const Variable& a, const Variable& b) {
  return a.key == b.key && a.literal == b.literal && a.secret == b.secret && a.origin == b.origin &&
         a.otherOrigin == b.otherOrigin && a.repository == b.repository && a.tenantId == b.tenantId;
}

bool isSameTerminal(const kj::Maybe<Terminal>& a, const kj::Maybe<Terminal>& b) {
  KJ_IF_MAYBE (one, a) {
    KJ_IF_MAYBE (other, b) {
      return one->columns == other->columns && one->rows == other->rows && one->term == other->term;
    }
    return false;
  }
  return b == nullptr;
}

}  // namespace

bool isSameLaunch(const LaunchSpec& a, const LaunchSpec& b) {
  if (a.command != b.command || a.resumeCommand != b.resumeCommand) return false;
  if (a.workingDirectory != b.workingDirectory) return false;
  if (a.pauseWhenFull != b.pauseWhenFull || !isSameTerminal(a.terminal, b.terminal)) return false;
  if (a.variables.size() != b.variables.size()) return false;
  for (auto i: kj::indices(a.variables)) {
    if (!isSameVariable(a.variables[i], b.variables[i])) return false;
  }
  return true;
}

}  // namespace capstan
