@0xa4555cbfed1682c1;
# Administration of the daemon.

using Cxx = import "/capnp/c++.capnp";
using Error = import "error.capnp".Error;
using Stream = import "stream.capnp";
using Values = import "values.capnp";
using Environment = import "environment.capnp";
using Id = Values.Id;
$Cxx.namespace("capstan::rpc");
$Cxx.allowCancellation;

interface HostKeyChallenge {
  # Bound to one key that was seen in one handshake: nothing unseen can be accepted.
  describe @0 () -> (hop :UInt8, host :Text, port :UInt16, algorithm :Text, sha256 :Text,
                     known :Text);
  accept @1 () -> (error :Error);
}

interface Table(T) {
  list @0 () -> (rows :List(Row));
  get @1 (id :Id) -> (row :T, version :UInt64, error :Error);
  put @2 (id :Id, row :T, ifVersion :UInt64) -> (version :UInt64, error :Error);   # 0 = new
  remove @3 (id :Id, ifVersion :UInt64) -> (error :Error);
  watch @4 (watcher :Environment.Watcher(T)) -> (subscription :Stream.Subscription);
  struct Row { value @0 :T; version @1 :UInt64; }
}

interface Admin {
  executors @0 () -> (table :Table(Values.Executor));
  profiles @1 () -> (table :Table(Values.Profile));
  probe @2 (executorId :Id, profileId :Id, progress :Environment.Progress)
        -> (steps :List(Values.PrepareStep), challenges :List(HostKeyChallenge),
            detailsJson :Data, error :Error);
  grants @3 () -> (table :Table(Values.Grant));
  addPrincipal @4 (name :Text, certificateSha256 :Data)
               -> (principalId :Id, token :Data, error :Error);   # The token is shown once.
  environment @5 (id :Id) -> (environment :Environment.TaskEnvironment, error :Error);
  setDefaultExecutor @6 (tenantId :Text, executorId :Id) -> (error :Error);
  setSecret @7 (name :Text, value :Data) -> (error :Error);
  allowSecret @8 (name :Text, environmentId :Id, profileId :Id) -> (error :Error);
  limits @9 () -> (table :Table(Stream.KeyValue));
  audit @10 (after :UInt64, limit :UInt16) -> (entriesJson :List(Data), next :UInt64);
  shutdown @11 (drainMs :UInt64) -> (error :Error);
  # Answers, then ends the daemon; runs are treated as any stop of the daemon treats them.
}
