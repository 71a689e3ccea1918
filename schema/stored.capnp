@0xe17f20c0a0ba4e2d;
# Values inside the database that have a shape of their own. Only src/store reads them. A field is
# never renumbered or reused: rows of every earlier release are read with this schema.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("capstan::stored");
$Cxx.allowCancellation;

struct Pair { key @0 :Text; value @1 :Text; }
struct Pairs { entries @0 :List(Pair); }
struct Words { entries @0 :List(Text); }

struct Variable {              # One definition of an environment variable.
  key @0 :Text;
  literal @1 :Text;
  secret @2 :Text;             # A secret's name, never its value; empty = the literal counts.
  origin @3 :UInt16;           # As Origin in values.capnp.
  otherOrigin @4 :Text;
  repository @5 :Text;
  tenantId @6 :Text;
}
struct Variables { entries @0 :List(Variable); }

struct EnvironmentSpec {       # What a task asked of its environment.
  taskId @0 :Text;
  title @1 :Text;
  tenantId @2 :Text;
  executor @3 :Text;
  profile @4 :Text;
  hasDirectory @5 :Bool;       # The user's directory; false: one of ours.
  directory @6 :Text;
  labels @7 :List(Pair);
  repositories @8 :List(Repository);   # To clone; empty = none.
  sourceRoots @9 :List(Text);
  reuseRequired @10 :Bool;
}
struct Repository { path @0 :Text; url @1 :Text; ref @2 :Text; }

struct LaunchSpec {            # What one start of a process was to be.
  command @0 :List(Text);
  variables @1 :List(Variable);
  workingDirectory @2 :Text;
  hasTerminal @3 :Bool;        # false: pipes.
  columns @4 :UInt16;
  rows @5 :UInt16;
  term @6 :Text;
  pauseWhenFull @7 :Bool;
  resumeCommand @8 :List(Text);
}

struct Step {                  # One step of a bring-up.
  name @0 :Text;
  command @1 :Text;
  status @2 :UInt16;           # As PrepareStep::Status in src/domain.
  output @3 :Text;
  error @4 :Text;
  startedAt @5 :Int64;
  endedAt @6 :Int64;
  warning @7 :Text;
  warningDetail @8 :Text;
}
struct Steps { entries @0 :List(Step); }

struct Evidence {              # What is kept of a failure.
  code @0 :UInt16;             # As ErrorCode in error.capnp.
  message @1 :Text;
  source @2 :Text;
  upstreamCode @3 :Text;
}
struct EvidenceList { entries @0 :List(Evidence); }
