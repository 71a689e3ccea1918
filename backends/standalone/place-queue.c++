#include "backends/standalone/place-queue.h"

#include <kj/debug.h>

namespace capstan {

kj::Own<PlaceQueue::Line> PlaceQueue::joinLine(kj::StringPtr path) {
  auto& line = lines.findOrCreate(
      path, [&]() -> decltype(lines)::Entry { return {kj::str(path), kj::refcounted<Line>()}; });
  return kj::addRef(*line);
}

void PlaceQueue::leaveLine(kj::Own<Line> line, kj::StringPtr path) {
  line = nullptr;
  KJ_IF_MAYBE (kept, lines.find(path)) {
    if (!(*kept)->isShared()) lines.erase(path);
  }
}

// deliver() hands failures to the caller.
void PlaceQueue::taskFailed(kj::Exception&& exception) {
  KJ_LOG(ERROR, "work on a folder failed", exception);
}

}  // namespace capstan
