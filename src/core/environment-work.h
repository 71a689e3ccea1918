#pragma once
// What an environment has under way for callers who may leave: the insides of EnvironmentActor,
// for its own files.

#include "core/environment-actor.h"

namespace capstan {

struct EnvironmentActor::Launching final: public kj::Refcounted {
  kj::String key;   // Of the request id; empty = nobody can join.
  LaunchSpec spec;  // To tell a repetition from a reused id.
  kj::TimePoint begun;
  uint32_t waiting = 0;  // Callers; none left = it is to be cancelled.
  kj::Maybe<Result<kj::Own<SessionActor>>> result;
  kj::Own<kj::PromiseFulfiller<void>> finish;
  kj::ForkedPromise<void> finished = nullptr;

  explicit Launching(kj::TimePoint now): begun(now) {
    auto pair = kj::newPromiseAndFulfiller<void>();
    finish = kj::mv(pair.fulfiller);
    finished = pair.promise.fork();
  }
};

struct EnvironmentActor::Execing final: public kj::Refcounted {
  kj::Own<kj::PromiseFulfiller<Result<kj::Own<ExecProcess>>>> answer;
  bool cancelled = false;
};

struct EnvironmentActor::Resuming final: public kj::Refcounted {
  uint32_t waiting = 0;  // Callers; none left = it is to be cancelled.
  uint32_t stopsBefore;  // Of the environment and of the session: what began before a stop does
  uint32_t sessionStopsBefore;  // not start after it.
  kj::Maybe<Result<kj::Own<RunActor>>> result;
  kj::Own<kj::PromiseFulfiller<void>> finish;
  kj::ForkedPromise<void> finished = nullptr;

  Resuming(uint32_t stops, uint32_t sessionStops)
      : stopsBefore(stops), sessionStopsBefore(sessionStops) {
    auto pair = kj::newPromiseAndFulfiller<void>();
    finish = kj::mv(pair.fulfiller);
    finished = pair.promise.fork();
  }
};

// Its steps are no part of what brought the environment up: nobody is shown them.
struct EnvironmentActor::PlaceCheck final: public kj::Refcounted, public ProgressSink {
  Outcome fault;

  void report(const PrepareStep&, uint16_t, uint16_t) override {}
};

}  // namespace capstan
