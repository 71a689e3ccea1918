#pragma once
// What `executor`, `profile` and `secret` share: reading words and texts, calls, and how rows look.

#include "tools/capstan/context.h"

#include <kj/vector.h>

namespace capstan::cli {

// Sends a request and waits for its answer.
template <typename Results, typename Request>
capnp::Response<Results> ask(Context& context, Request&& request) {
  return context.wait(
      request.send().then([](capnp::Response<Results>&& response) { return kj::mv(response); }));
}

// One "key=value"; an empty value clears the key.
struct Setting {
  kj::String key;
  kj::String value;
};
// The words from `from` on; a usage error for one that is no key=value, or for a key twice.
kj::Vector<Setting> readSettings(Context& context, size_t from);

// `present` with the settings in it, as a list for the daemon.
void mergeConfig(capnp::List<rpc::KeyValue>::Reader present, kj::ArrayPtr<const Setting> settings,
                 kj::Function<capnp::List<rpc::KeyValue>::Builder(uint32_t)> init);

// The content of a file, or of standard input for "-". At most `most` octets.
kj::Array<kj::byte> readInput(kj::StringPtr path, size_t most);

// --if-version, null when it is not given.
kj::Maybe<uint64_t> versionOption(Context& context);

// Whether a save lost its race, so that reading again and repeating it makes sense.
bool isOvertaken(rpc::Error::Reader error);
constexpr int MOST_TRIES = 8;

void writeJson(JsonWriter& json, rpc::Executor::Reader executor);
void writeJson(JsonWriter& json, rpc::Profile::Reader profile);

// By id, name or unique prefix; fails when there is none.
capnp::Response<rpc::Table<rpc::Executor>::GetResults> getExecutor(Context& context,
                                                                   kj::StringPtr name);
capnp::Response<rpc::Table<rpc::Profile>::GetResults> getProfile(Context& context,
                                                                 kj::StringPtr name);

}  // namespace capstan::cli
