#pragma once
// One createInstance of a fake backend.

#include "backends/fake/fake-backend.h"
#include "backends/fake/fake-place.h"

namespace capstan {

// Lives in the frame of the call.
class FakeBackend::Bringup final {
public:
  Bringup(FakeBackend& backend, CreateRequest request, ProgressSink& progress, InventoryLog& log)
      : backend(backend), request(kj::mv(request)), progress(progress), log(log) {}
  KJ_DISALLOW_COPY_AND_MOVE(Bringup);

  kj::Promise<Result<kj::Own<Attachment>>> run();

private:
  FakeBackend& backend;
  CreateRequest request;  // Its inventory is kept as the log has it.
  ProgressSink& progress;
  InventoryLog& log;
  kj::Vector<uint64_t> noted;  // What this call has intended, oldest first.
  bool unnotable = false;      // A note was refused.

  // Whether a volume of ours may not be made: files of the user's are not in it.
  bool mustExist() const { return request.reuseRequired && request.place.directory == nullptr; }
  Outcome checkDirectory();
  kj::Promise<Outcome> makeAll();
  kj::Promise<Outcome> ensure(kj::StringPtr kind);
  kj::Promise<Outcome> makeNew(kj::StringPtr kind);
  // Makes what the item says and confirms it.
  kj::Promise<Outcome> makeNoted(uint64_t seq);
  kj::Promise<Outcome> startAgain(kj::StringPtr kind);
  kj::Promise<Outcome> makeThing(FakeThing thing);
  kj::Promise<Outcome> launchHelper(FakeThing thing);
  kj::Promise<Outcome> confirm(uint64_t seq, kj::String identity);
  kj::Promise<Outcome> forget(uint64_t seq);
  kj::Promise<void> takeBack();
  InventoryItem& item(uint64_t seq);
};

}  // namespace capstan
