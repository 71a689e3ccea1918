#pragma once

#include <kj/list.h>
#include <kj/refcount.h>
#include <kj/string.h>

#include <cstdint>

namespace capstan {

// Told of every change of one thing, or of all things of one owner, in the turn in which it
// happens. Must only take note: nothing may be changed, added or removed from within.
class ChangeListener {
public:
  ChangeListener() = default;
  KJ_DISALLOW_COPY_AND_MOVE(ChangeListener);

  // `id` names what has changed, appeared or gone.
  virtual void changed(kj::StringPtr id) = 0;

private:
  friend class ChangeHub;
  kj::ListLink<ChangeListener> link;
};

// Counts the changes of one thing, or of all things of one owner, and tells those who listen.
// Counted: what changes and what is told about it may end in any order.
class ChangeHub final: public kj::Refcounted {
public:
  // Of the thing `id`; empty for one of many things.
  explicit ChangeHub(kj::String id);
  ~ChangeHub() noexcept(false);

  // The number of changes so far.
  uint64_t seq() const { return count; }
  // The thing has changed. Its parent, if it has one, is told too.
  void changed() { changed(id); }
  void changed(kj::StringPtr id);

  // From now on `parent` counts and tells every change of this as well.
  void joinTo(kj::Own<ChangeHub> parent) { this->parent = kj::mv(parent); }

  // A listener is told until it is removed, which it must be before either of the two ends.
  void add(ChangeListener& listener) { listeners.add(listener); }
  void remove(ChangeListener& listener) { listeners.remove(listener); }

private:
  kj::String id;
  uint64_t count = 0;
  kj::Maybe<kj::Own<ChangeHub>> parent;
  kj::List<ChangeListener, &ChangeListener::link> listeners;
};

}  // namespace capstan
