#pragma once
// Between the values of domain and those of the client interface.

#include "bootstrap.capnp.h"
#include "domain/environment.h"
#include "environment.capnp.h"
#include "values.capnp.h"

namespace capstan {

void write(rpc::ExitStatus::Builder out, const ExitStatus& status);
void write(rpc::PrepareStep::Builder out, const PrepareStep& step);
void write(rpc::SessionInfo::Builder out, const SessionStatus& status);
void write(rpc::EnvironmentStatus::Builder out, const EnvironmentStatus& status);
void write(rpc::RuntimeStatus::Builder out, const RuntimeStatus& status);

// What a client asked for. A part that this version does not carry out is refused, never dropped:
// unsupported, naming the field.
Result<LaunchSpec> readLaunch(rpc::LaunchSpec::Reader spec);
Result<EnvironmentSpec> readEnvironment(rpc::Supervisor::EnvironmentSpec::Reader spec);

// `field` is the variable's place in what the client sent.
Result<Variable> readVariable(rpc::Variable::Reader in, kj::StringPtr field);

// A text of a client as the domain keeps it.
inline kj::String copy(capnp::Text::Reader text) { return kj::heapString(text); }

}  // namespace capstan
