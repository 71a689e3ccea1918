@0x8547c2167df22c76;
# The way in: a connection's first object, and a principal's view of the daemon.

using Cxx = import "/capnp/c++.capnp";
using Error = import "error.capnp".Error;
using Stream = import "stream.capnp";
using Values = import "values.capnp";
using Environment = import "environment.capnp";
using Admin = import "admin.capnp".Admin;
using Id = Values.Id;
$Cxx.namespace("capstan::rpc");
$Cxx.allowCancellation;

interface Bootstrap {
  serverInfo @0 () -> (apiVersion :UInt16, build :Text, features :List(Text));
  peer @1 () -> (peer :Peer);
  authenticate @2 (credential :Credential) -> (supervisor :Supervisor, admin :Admin,
                                               error :Error);
  # admin is null unless the credential is an administrator's.
  restore @3 (ref :Environment.SturdyRef, credential :Credential)
          -> (cap :Capability, error :Error);            # Any refusal: notFound.
  forget @4 (ref :Environment.SturdyRef, credential :Credential) -> (error :Error);

  struct Peer {
    union {
      unixSocket :group { uid @0 :UInt32; pid @1 :Int32; }
      tls :group { certificateSha256 @2 :Data; }
      other @3 :Text;
    }
  }
  struct Credential {
    union { peer @0 :Void; token @1 :Data; }
  }
}

interface Supervisor {         # One principal's view: only what it was granted.
  ensure @0 (spec :EnvironmentSpec, progress :Environment.Progress)
         -> (environment :Environment.TaskEnvironment, id :Id, made :Bool, error :Error);
  # The environment of the task, made if there is none. Answers before the place is up (state
  # preparing). A differing executor or profile: executorMismatch.
  open @1 (id :Id) -> (environment :Environment.TaskEnvironment, error :Error);
  # By id, task id or unambiguous prefix of either, among the caller's own.
  list @2 (after :Id, limit :UInt16) -> (page :List(Values.EnvironmentStatus), next :Id);
  # Ordered by id; limit 0 or above 500 = 500; next empty = the last page.
  watch @3 (watcher :Environment.Watcher(Values.EnvironmentStatus))
        -> (subscription :Stream.Subscription);
  runtimes @4 () -> (runtimes :List(Values.RuntimeStatus));
  executors @5 () -> (executors :List(Values.Executor), profiles :List(Values.Profile));
  # Those that the caller may use, without config, scripts and variables: Admin has the whole rows.

  struct EnvironmentSpec {
    requestId @0 :Values.RequestId;
    taskId @1 :Text;
    title @2 :Text;
    tenantId @3 :Text;
    executorId @4 :Id;         # Id, name or unique prefix.
    profileId @5 :Id;
    workspace @6 :Values.WorkspaceSpec;
    metadataJson @7 :Data;
    labels @8 :List(Stream.KeyValue);
  }
}
