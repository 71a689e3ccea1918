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

const newRow :UInt64 = 0;                          # For ifVersion: there is none yet.
const anyVersion :UInt64 = 0xffffffffffffffff;     # Whatever it is at: the last commit wins.

interface Table(T) {
  list @0 (after :Id, limit :UInt16) -> (rows :List(Row), next :Id);
  # Ordered by id; limit 0 or above 500 = 500, and large rows end a page earlier; next empty = the
  # last page.
  get @1 (id :Id) -> (row :T, version :UInt64, error :Error);
  # By id, then name, then unique prefix of either.
  put @2 (id :Id, row :T, ifVersion :UInt64) -> (version :UInt64, error :Error, row :T);
  # Exact id; empty with newRow: the new row gets its id. Otherwise the row is changed if it is at
  # `ifVersion`, else wrongState (afterRefresh). A field of `row` that is not set (a null pointer,
  # not an empty text) keeps what is there at the commit; a list that is set replaces the whole
  # list. Answers with the row as that commit left it. A refused one changes nothing.
  remove @3 (id :Id, ifVersion :UInt64) -> (error :Error);   # Exact id.
  watch @4 (watcher :Environment.Watcher(T)) -> (subscription :Stream.Subscription);
  # Events of one row that the watcher has not taken yet become one.
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
  # No tenant = for everybody; no executor = no default. The executor by id, name or unique prefix.
  setSecret @7 (name :Text, value :Data) -> (error :Error, made :Bool);
  # Made, or its value replaced; who may use it stays.
  allowSecret @8 (name :Text, environmentId :Id, profileId :Id) -> (error :Error);
  # Exactly one of the two, by exact id.
  limits @9 () -> (table :Table(Stream.KeyValue));
  audit @10 (after :UInt64, limit :UInt16) -> (entriesJson :List(Data), next :UInt64);
  shutdown @11 (drainMs :UInt64) -> (error :Error);
  # Answers, then ends the daemon; runs are treated as any stop of the daemon treats them.
  defaultExecutors @12 () -> (defaults :List(Values.DefaultExecutor));
  secrets @13 (after :Text, limit :UInt16) -> (secrets :List(Values.SecretInfo), next :Text,
                                               error :Error);
  # Ordered by name; pages as in Table.list. Never values.
  removeSecret @14 (name :Text) -> (error :Error);
  disallowSecret @15 (name :Text, environmentId :Id, profileId :Id) -> (error :Error);
  rotateSecretKey @16 () -> (resealed :UInt64, error :Error);
  # A new key for everything that is sealed. Goes on when the call is dropped.
}
