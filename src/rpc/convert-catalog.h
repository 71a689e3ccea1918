#pragma once
// Between executors, profiles and secrets and their form in the client interface.

#include "domain/catalog-changes.h"
#include "rpc/convert.h"

namespace capstan {

void write(rpc::Executor::Builder out, const ExecutorRecord& record);
void write(rpc::Profile::Builder out, const ProfileRecord& record);
// Without config, scripts and variables.
void writeNames(rpc::Executor::Builder out, const ExecutorRecord& record);
void writeNames(rpc::Profile::Builder out, const ProfileRecord& record);

// What a client wants saved; fields that are not set are null.
Result<ExecutorChange> readExecutorChange(rpc::Executor::Reader row);
Result<ProfileChange> readProfileChange(rpc::Profile::Reader row);

}  // namespace capstan
