#pragma once

#include "base/async.h"
#include "core/environment-ledger.h"
#include "core/episode-keeper.h"
#include "core/helper-links.h"
#include "core/progress-hub.h"
#include "core/session-actor.h"

#include <kj/map.h>

namespace capstan {

class ExecProcess;
class StagedRefresh;
struct PreparePlan;
struct PreparerTools;
enum class AssemblyPath;

// Whose variables are put together, and when.
struct Assembly {
  kj::String sessionId;  // Empty for an exec and for scripts.
  kj::String processId;
  AssemblyPath path;
  kj::Maybe<kj::String> resumeToken;
};

// One task environment: its place, its sessions, its background work. Counted; owned by the
// Supervisor, so that clients that leave end nothing but what is theirs (execs, deliveries).
class EnvironmentActor final: public kj::Refcounted, private kj::TaskSet::ErrorHandler {
public:
  // `services` and `links` outlive it. The record, the inventory and the episodes (oldest first)
  // are what is durable, or about to be. One that is not new begins in the state of its record.
  EnvironmentActor(Services& services, HelperLinks& links, EnvironmentRecord record,
                   kj::Vector<InventoryItem> inventory, kj::Vector<EpisodeRecord> episodes = {});
  ~EnvironmentActor() noexcept(false);

  // A session that the store has, with its runs: at least one, oldest first.
  void restore(const SessionRecord& session, kj::ArrayPtr<const RunRecord> runs);

  kj::StringPtr id() const { return row.id; }
  kj::StringPtr taskId() const { return row.spec.taskId; }
  kj::StringPtr owner() const { return row.owner; }
  const EnvironmentSpec& asked() const { return row.spec; }
  kj::StringPtr executorId() const { return row.executorId; }
  kj::StringPtr executorType() const { return row.executorType; }
  kj::StringPtr runtime() const { return row.runtime; }
  kj::StringPtr profileId() const { return row.profileId; }
  // Where it was last; empty while it has never been up.
  kj::StringPtr workspace() const { return row.workspace; }
  EnvironmentState state() const { return current; }
  // True once cleaned up completely: the supervisor forgets it.
  bool isGone() const { return gone; }

  // Its row, for the first time, before anybody may see it.
  kj::Promise<Outcome> record();
  // How its runtime knows it.
  PlaceRecord place() const;
  // After restore(): whether it has to be found out what became of it; it is `recovering` then.
  bool beginRecovery();
  // What its runtime says has become of it: it cannot be told, or there is no helper any more.
  // Resolves when it has been written down.
  kj::Promise<void> unreachable(kj::Maybe<Problem> why);
  kj::Promise<void> abandoned();
  // What its runtime has seen of its workspace.
  void sawWorkspace(HealthAxis seen);
  // Its helper is there, also after unreachable(). `reports` are what that one says of its
  // instances in this environment: those of sessions are taken back, what belongs to none is ended.
  // Resolves when all is settled and written down.
  // A Problem leaves it unsettled, for another try.
  kj::Promise<Outcome> takeBack(kj::Own<Attachment> attachment, kj::Own<AgentLink> link,
                                kj::Array<InstanceReport> reports);
  // Replaces the way to the helper while the present one serves (S9.4): a new one is staged and
  // linked, its token and the changed inventory are made durable, and only then it is installed and
  // the old one closed. Sessions go on over the new one; those of a helper that is another process
  // now are settled as lost, and execs end. A Problem before that has changed nothing, and the old
  // connection stays; one after it leaves the environment `recovering`, for the recovery's next
  // try. unsupported: not with this runtime. wrongState: it is not up, or its helper was lost or
  // replaced meanwhile. Takes turns with stops, clean-ups and recoveries. Dropping the promise does
  // not end the refresh.
  kj::Promise<Outcome> refresh();
  // Whom to ask what became of the helper when the link to it is lost. It is told in the turn of
  // the loss and must outlive this.
  void onLinkLost(kj::Function<void(EnvironmentActor&)> ask) { recoverer = kj::mv(ask); }
  // Changes of all that status() shows; live steps are told at most ten times a second.
  ChangeHub& changes() { return *hub; }

  // What core itself knows.
  EnvironmentStatus status() const;
  // With positions and descendants of the sessions.
  kj::Promise<EnvironmentStatus> statusWithReports();

  // Looks at the place and asks its helper, within limits.deadlines.inspection: health and episodes
  // say afterwards what was seen, "unknown" when that cannot be told. Starts, changes and removes
  // nothing there. Who asks while another does joins that. A Problem: its runtime is not there.
  // Dropping the promise does not end the look.
  kj::Promise<Outcome> recheck();

  // Starts the bring-up in the background unless it is up or under way.
  void begin();

  // Shows the bring-up's steps to `sink` while the result lives, from its first when one is in
  // progress; keeps this environment alive.
  kj::Own<void> showProgress(ProgressSink& sink);

  // A new session with its run. Joins a bring-up in progress; environmentPreparing when that
  // outlasts the deadline. The environment's own task set does the work: dropping the promise asks
  // for cancellation; the step in progress ends and everything is unwound, unless the run has been
  // started by then. A request id that was given in the last 24 hours joins that launch or finds
  // its session; a launch that failed is forgotten, so that it can be tried again.
  kj::Promise<Result<kj::Own<SessionActor>>> launch(LaunchSpec spec);

  // A process without a session, ephemeral under agentctl, created and configured. It ends with
  // the result; dropping the promise leaves nothing.
  kj::Promise<Result<kj::Own<ExecProcess>>> exec(LaunchSpec spec);

  // The session's run, which goes on if it is live; else a new one that repeats the latest (D10),
  // with its variables resolved afresh, in the same place: with the helper that is there, or with a
  // new one when that is confirmed to be gone. Of `wanted` the request id, the resume command,
  // `wait`, `start` and the deadline count; more is invalidArgument. Nothing is ever made in place
  // of a lost workspace (workspaceLost), nor while it cannot be told what runs (unreachable). Who
  // asks while another does joins that; a request id that was given in the last 24 hours finds its
  // run, or why that was never started. Dropping the promise is as with launch(); a run that could
  // not be started stays as a failed one.
  kj::Promise<Result<kj::Own<RunActor>>> resume(kj::Own<SessionActor> session, LaunchSpec wanted);
  // What whoever converses with the session's agent wants to find again (S1.3.2): for the run
  // `runId` only, wrongState when another has followed it. The token is kept sealed and given to
  // the session's next run; empty = none. `context`: JSON or empty.
  kj::Promise<Outcome> saveProgress(kj::Own<SessionActor> session, SavedProgress progress);

  // Starts a session that was launched without. Dropping the promise does not end the start.
  kj::Promise<Outcome> startSession(kj::Own<SessionActor> session);

  // By id or unambiguous prefix.
  Result<kj::Own<SessionActor>> findSession(kj::StringPtr idOrPrefix);

  // A client's wish for the time from TERM to KILL; 0 = the default, at most 10 minutes.
  kj::Duration stopGrace(uint64_t askedMs) const;

  // Ends all runs and execs; the place stays. Idempotent; concurrent calls take turns. Dropping the
  // promise does not end the stop.
  kj::Promise<Outcome> stop(kj::Duration grace, StopMode mode);
  // Ends one session's run. Dropping the promise does not end the stop.
  kj::Promise<Outcome> stopSession(kj::Own<SessionActor> session, kj::Duration grace,
                                   StopMode mode);

  // Ends everything and removes what was made as far as `scope` goes; resolves to what was left.
  // With leftovers the environment stays, failed, for another try.
  kj::Promise<CleanupReport> cleanUp(CleanupScope scope);

  // Deletes the logs of runs that ended before `before` (wall clock).
  kj::Promise<void> expireLogs(UnixMs before);

  // The scope of a clean-up that the end of an earlier daemon interrupted.
  kj::Maybe<CleanupScope> interruptedCleanup() const;

  // For the daemon's end: takes nothing new, ends execs, and resolves when no bring-up and no
  // launch is in progress any more. Sessions go on running.
  kj::Promise<void> close();

  // Whether any process may still run.
  bool isBusy() const;

private:
  friend class ExecProcess;
  struct Launching;  // One launch, shared by its task and all who wait for it.
  struct Execing;    // One exec on its way, shared by its task and its caller.
  struct Resuming;   // One resume, shared by its task and all who wait for it.
  struct PlaceCheck;

  Services& services;
  HelperLinks& links;
  EnvironmentRecord row;  // All but its state, workspace and last error stays as it is.
  kj::Own<EnvironmentLedger> ledger;
  kj::Own<ChangeHub> hub;
  kj::Own<EpisodeKeeper> episodes;
  EnvironmentState current;
  bool gone = false;
  bool closing = false;
  kj::Maybe<Problem> lastError;
  ProgressHub progress;
  bool stepsWaiting = false;  // Steps have changed since they were told.
  kj::TimePoint stepsTold = kj::origin<kj::TimePoint>();

  kj::Maybe<kj::Own<Attachment>> attachment;
  kj::Maybe<kj::Own<AgentLink>> link;
  kj::TreeMap<kj::String, kj::Own<SessionActor>> sessions;
  kj::HashMap<kj::String, kj::Own<ProcessActor>> execs;
  // By request id, in hexadecimal: launches in progress and those whose session stands.
  kj::HashMap<kj::String, kj::Own<Launching>> requests;
  // Likewise of execs, which are never run twice, and when each was given.
  kj::HashMap<kj::String, kj::TimePoint> execRequests;
  kj::HashMap<kj::String, kj::Own<Resuming>> resumes;  // In progress, by session.
  kj::Maybe<kj::Own<PlaceCheck>> placeCheck;           // The one in progress, or the last.
  uint32_t launching = 0;
  uint32_t execing = 0;
  kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> abandonCreating;     // Null: nothing is created.
  kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> abandonLooking;      // Null: nobody looks.
  kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> interruptPreparing;  // Null: nothing is prepared.
  kj::Maybe<kj::Function<void(EnvironmentActor&)>> recoverer;
  kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> settle;
  kj::Maybe<kj::ForkedPromise<void>> settled;  // The recovery in progress, or the last one.
  bool lostHere = false;                       // This daemon was linked to it before.
  uint32_t losses = 0;                         // How often sight of it was lost.
  kj::String lostGeneration;                   // Which was there when that was last.
  HealthAxis workspaceHealth = HealthAxis::UNKNOWN;
  uint32_t flightStops = 0;  // What `stops` was when the bring-up began.
  uint32_t stops = 0;        // Launches that began before a stop do not start after it.

  SingleFlight bringingUp;
  SingleFlight checkingPlace;  // Never while a bring-up creates.
  SingleFlight rechecking;
  AsyncLock ending;  // stop, cleanUp and recovery take turns.
  // Last: no task outlives what it uses. None holds a reference to this, which would be a cycle.
  kj::TaskSet making;  // What makes or discards instances: a clean-up waits for all of it.
  SingleFlight idle;   // Of all who wait until `making` is empty.
  kj::TaskSet tasks;

  // What is shown at once, because work is being done; durable states go through conclude().
  void setState(EnvironmentState next);
  void stepChanged();
  // Writes the state down with what belongs to it, then shows it, unless the present one is not
  // `from` any more.
  kj::Promise<Outcome> conclude(EnvironmentState from, EnvironmentState next);
  Result<Backend*> backend() const;
  kj::Promise<void> bringUp();
  // The place with its helper, then what belongs into it.
  kj::Promise<Outcome> reach();
  kj::Promise<Outcome> attach(kj::Duration limit);
  // A place that was complete once is only started again, by runtimes that know how to; all others
  // find it by its inventory, or make it.
  kj::Promise<Result<kj::Own<Attachment>>> reachPlace(Backend& backend, CreateRequest request,
                                                      ProgressSink& steps);
  // The compute that came up after a stop, which could not know of it.
  kj::Promise<void> stopLateCompute();
  kj::Promise<StopReport> stopCompute(Backend& backend, StopMode mode, bool agentStopFailed);
  // For those after whom nothing may be made any more: a bring-up may end its step, for a while;
  // then it is left where it is, with its notes.
  kj::Promise<void> settleMaking();
  // Repositories and prepare script, inside the place that was reached.
  kj::Promise<Outcome> prepare();
  kj::Promise<Outcome> runCleanup();
  kj::Promise<Result<PreparePlan>> planPreparation();
  PreparerTools preparerTools();
  kj::Maybe<const ProfileRecord&> profile() const;
  kj::Promise<Result<Resolution>> resolve(kj::ArrayPtr<const Variable> launch, Assembly assembly);
  // A stop or a clean-up does not wait for clones and scripts.
  void interruptPreparation() {
    KJ_IF_MAYBE (fulfiller, interruptPreparing) {
      (*fulfiller)->fulfill();
    }
  }
  bool isPreparing() const {
    return current == EnvironmentState::PREPARING && bringingUp.running();
  }
  // Up and linked, or why not.
  kj::Promise<Outcome> ready();
  void use(kj::Own<AgentLink> reached);
  kj::Promise<void> watchLink(kj::Own<AgentLink> watched);
  bool isUnsettled() const;
  kj::Promise<void> settleLosses(kj::StringPtr message, kj::StringPtr cause);
  kj::Promise<void> abandonInTurn();
  // Of its sessions and strays, as the linked helper reports them; the end of a recovery.
  kj::Promise<void> settleInstances(kj::Array<InstanceReport> reports, Outcome& outcome);
  // The processes go on, or not, and cannot be seen.
  void losesSight();
  void askForRecovery();
  kj::Promise<Outcome> refreshWhenFree();
  kj::Promise<Outcome> refreshInTurn();
  Outcome refuseRefresh(const AgentLink* before);
  kj::Promise<Outcome> commitRefresh(StagedRefresh& staged, const AgentLink& before,
                                     bool& installed);
  kj::Promise<Outcome> noteItems(kj::Array<InventoryItem> items);
  kj::Promise<void> takeBackInTurn(kj::Own<Attachment> attachment, kj::Own<AgentLink> link,
                                   kj::Array<InstanceReport> reports, Outcome& outcome);
  EnvironmentHealth health() const;
  void noteGeneration(const Attachment& reached, const AgentLink& opened);
  // Something was noticed of the compute of that generation, or of the one that was there last.
  kj::Promise<void> saw(EpisodeOutcome outcome, Problem cause = {},
                        kj::Vector<kj::String> affected = {},
                        kj::Maybe<kj::StringPtr> generation = nullptr);
  // What an attempt to reach the place has shown of it.
  kj::Promise<void> sawWorkspace(const Outcome& fault);
  kj::Promise<void> watchLoss(uint32_t loss);
  kj::Vector<kj::String> unsettledSessions() const;
  kj::Promise<void> lookOnce(Backend& backend);
  kj::Promise<Outcome> answers(kj::Own<AgentLink> asked, Deadline deadline);
  // When it is known what became of it, or that this cannot be told now.
  kj::Promise<void> onSettled();
  void tellSettled();
  // Whoever asks from here on waits for tellSettled(), with those who wait already.
  void beginSettling();
  void checkLink();
  Outcome refuseUnsettled() const;
  Problem unsettledProblem() const;
  kj::Promise<Outcome> takeBackOne(kj::Own<RunActor> run, InstanceReport report);
  kj::Promise<void> discardStray(kj::String instanceId);
  kj::Promise<Result<kj::Own<ProcessActor>>> makeProcess(LaunchSpec spec, Assembly assembly);
  kj::Promise<Result<kj::Own<SessionActor>>> startRun(kj::Own<Launching> work, LaunchSpec spec,
                                                      RunRecord run, uint32_t stopsBefore);
  // A run that begins now, without its spec.
  RunRecord newRun(const LaunchSpec& spec, kj::String sessionId) const;
  // `isNew`: the session too.
  kj::Promise<Outcome> beginRun(const LaunchSpec& spec, const RunRecord& run, bool isNew);
  // Why what was under way at a stop (`stopped`, with its words) must not go on, or at an end.
  Outcome refuseStopped(bool stopped, kj::StringPtr words) const;
  Outcome refuseResume(SessionActor& session) const;
  Outcome interruptedResume(const Resuming& work, SessionActor& session) const;
  kj::Promise<void> runResume(kj::Own<Resuming> work, kj::Own<SessionActor> session,
                              LaunchSpec wanted);
  kj::Promise<Result<kj::Own<RunActor>>> makeResume(kj::Own<Resuming> work,
                                                    kj::Own<SessionActor> session,
                                                    LaunchSpec wanted);
  kj::Promise<Result<kj::Own<RunActor>>> repeatRun(kj::Own<Resuming> work,
                                                   kj::Own<SessionActor> session, LaunchSpec launch,
                                                   Assembly assembly);
  kj::Promise<Outcome> forgetOldRuns(SessionActor& session);
  kj::Promise<Outcome> checkPlace();
  kj::Promise<void> lookAtPlace(kj::Own<PlaceCheck> check);
  kj::Promise<void> runLaunch(kj::Own<Launching> work, LaunchSpec spec);
  kj::Promise<Result<kj::Own<SessionActor>>> makeSession(kj::Own<Launching> work, LaunchSpec spec);
  kj::Maybe<kj::Own<Launching>> findLaunch(const LaunchSpec& spec);
  kj::Own<Launching> beginLaunch(LaunchSpec spec);
  void forgetLaunch(const Launching& work);
  void forgetAllLaunches();
  // A launch of an earlier daemon whose session stands.
  void restoreLaunch(const RunRecord& run, SessionActor& session);
  Outcome unlessWaiting(const LaunchSpec& spec);
  bool remembersExec(kj::ArrayPtr<const kj::byte> requestId);
  kj::Promise<void> runExec(kj::Own<Execing> work, LaunchSpec spec);
  kj::Promise<Result<kj::Own<ProcessActor>>> makeExec(kj::Own<Execing> work, LaunchSpec spec);
  // Why something that began when `stops` was `stopsBefore` must not go on; null = it may.
  Outcome interrupted(bool cancelled, uint32_t stopsBefore) const;
  // Ends and deletes an exec in the background.
  void reap(kj::Own<ProcessActor> process);
  // Runs `work` in `tasks`, whoever waits for it.
  kj::Promise<Outcome> toItsEnd(kj::Promise<Outcome> work);
  kj::Promise<Outcome> stopAll(kj::Duration grace, StopMode mode);
  kj::Promise<void> stopInTurn(kj::Duration grace, StopMode mode, kj::Vector<Problem>& problems);
  kj::Promise<void> endProcesses(kj::Duration grace, StopMode mode, kj::Vector<Problem>& problems);
  kj::Promise<void> removeAll(CleanupScope scope, CleanupReport& report);
  kj::Promise<void> removeEach(CleanupScope scope, CleanupReport& report);
  kj::Promise<void> removeRecords(CleanupScope scope, CleanupReport& report);
  kj::Promise<void> concludeCleanup(CleanupScope scope, CleanupReport& report);
  // True when nothing of it is left.
  kj::Promise<bool> discardQuietly(kj::Own<ProcessActor> process);
  kj::Promise<bool> discardQuietly(kj::Own<SessionActor> session);
  Outcome refuseNew() const;
  static Problem preparing();
  void taskFailed(kj::Exception&& exception) override;
};

// A process of exec(): ended and deleted in the background when this is dropped.
class ExecProcess final {
public:
  ExecProcess(kj::Own<EnvironmentActor> environment, kj::Own<ProcessActor> process)
      : environment(kj::mv(environment)), running(kj::mv(process)) {}
  ~ExecProcess() noexcept(false) { environment->reap(kj::mv(running)); }
  KJ_DISALLOW_COPY_AND_MOVE(ExecProcess);

  ProcessActor& process() { return *running; }
  // Keeps the delivery of its output until the process is dropped.
  void keep(kj::Own<OutputReading> reading) { delivery = kj::mv(reading); }

private:
  kj::Own<EnvironmentActor> environment;
  kj::Own<ProcessActor> running;
  kj::Maybe<kj::Own<OutputReading>> delivery;
};

}  // namespace capstan
