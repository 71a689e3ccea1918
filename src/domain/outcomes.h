#pragma once
// What a run's outcome means for the records around it.

#include "domain/records.h"

namespace capstan {

// The state of a session whose latest run ended so.
SessionState sessionStateAfter(RunOutcome::Kind kind);
// Likewise of its running record.
RunningStatus runningStatusAfter(RunOutcome::Kind kind);

// Whether two launches ask for the same: all but the request id and what concerns the call only
// (`wait`, `start`, `deadline`).
bool isSameLaunch(const LaunchSpec& a, const LaunchSpec& b);

}  // namespace capstan
