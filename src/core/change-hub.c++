#include "core/change-hub.h"

namespace capstan {

ChangeHub::ChangeHub(kj::String id): id(kj::mv(id)) {}
ChangeHub::~ChangeHub() noexcept(false) {}

void ChangeHub::changed(kj::StringPtr id) {
  ++count;
  for (auto& listener: listeners)
    listener.changed(id);
  KJ_IF_MAYBE (above, parent) {
    (*above)->changed(id);
  }
}

}  // namespace capstan
