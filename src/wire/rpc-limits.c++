#include "wire/rpc-limits.h"

#include <kj/debug.h>

namespace capstan {

void CallMeter::admit() const {
  if (!overloaded()) return;
  kj::throwFatalException(
      KJ_EXCEPTION(OVERLOADED, "too many calls in flight on this connection, retry later", total));
}

void CallMeter::begin(uint32_t id, Question question) {
  ++total;
  octets += question.octets;
  if (question.streamWrite) ++streamWrites;
  questions.upsert(id, Entry{question, question.streamWrite ? 1u : 0u},
                   [](Entry& existing, Entry&& next) {
                     existing.question.octets += next.question.octets;
                     existing.streamWrites += next.streamWrites;
                     ++existing.calls;
                     ++existing.begun;
                   });
}

void CallMeter::answered(uint32_t id) {
  KJ_IF_MAYBE (entry, questions.find(id)) {
    // A reused id is held against its peer until the last of its calls is answered.
    if (--entry->calls > 0) return;
    total -= entry->begun;
    octets -= entry->question.octets;
    streamWrites -= entry->streamWrites;
    questions.erase(id);
  }
}

void CallMeter::finished(uint32_t id) {
  KJ_IF_MAYBE (entry, questions.find(id)) {
    if (!entry->question.wantsReturn) answered(id);
  }
}

kj::Maybe<kj::String> CallMeter::excess() const {
  if (guarded() > limits.maxUnanswered) {
    return kj::str(guarded(), " unanswered calls, the limit is ", limits.maxUnanswered);
  }
  if (octets > limits.maxRequestOctets) {
    return kj::str(octets, " octets of unanswered requests, the limit is ",
                   limits.maxRequestOctets);
  }
  return nullptr;
}

}  // namespace capstan
