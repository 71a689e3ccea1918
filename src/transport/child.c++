#include "transport/child.h"

#include "transport/uv-handle.h"

#include <csignal>
#include <memory>

namespace capstan {

namespace {

constexpr int MAX_CHILD_FD = 63;

Problem spawnProblem(int rc, kj::StringPtr program) {
  auto code = rc == UV_ENOENT || rc == UV_ENOTDIR ? ErrorCode::NOT_FOUND
              : rc == UV_EACCES || rc == UV_EPERM ? ErrorCode::DENIED
                                                  : ErrorCode::INTERNAL;
  return Problem(code, kj::str("cannot start ", program))
      .because(kj::str(uv_strerror(rc)))
      .from("system"_kj, kj::str(uv_err_name(rc)));
}

kj::Array<char*> pointers(kj::ArrayPtr<kj::String> words) {
  auto result = kj::heapArray<char*>(words.size() + 1);
  for (size_t i = 0; i < words.size(); ++i) {
    result[i] = words[i].begin();
  }
  result[words.size()] = nullptr;
  return result;
}

}  // namespace

class Child::State final: public UvHandle {
public:
  State(kj::Own<kj::PromiseFulfiller<ChildExit>> fulfiller, const ChildOptions& options)
      : fulfiller(kj::mv(fulfiller)), session(options.session), onDrop(options.onDrop) {
    handle.data = static_cast<UvHandle*>(this);
  }

  void close() { uv_close(reinterpret_cast<uv_handle_t*>(&handle), &UvHandle::freeClosed); }

  static void onExit(uv_process_t* process, int64_t code, int signal) {
    auto& self = static_cast<State&>(*static_cast<UvHandle*>(process->data));
    self.done = true;
    self.fulfiller->fulfill(ChildExit{static_cast<int>(code), signal});
    if (self.orphan) self.close();
  }

  uv_process_t handle;
  kj::Own<kj::PromiseFulfiller<ChildExit>> fulfiller;
  const ChildOptions::Session session;
  const ChildOptions::OnDrop onDrop;
  bool done = false;
  bool orphan = false;
};

Result<kj::Own<Child>> Child::spawn(UvLoop& uv, ChildOptions options) {
  KJ_REQUIRE(options.argv.size() > 0, "a process needs a program");
  auto arguments = pointers(options.argv);
  kj::Array<char*> variables;
  int highest = 2;
  for (auto& descriptor: options.descriptors) {
    KJ_REQUIRE(descriptor.child >= 0 && descriptor.child <= MAX_CHILD_FD, descriptor.child);
    highest = kj::max(highest, descriptor.child);
  }
  auto stdio = kj::heapArray<uv_stdio_container_t>(static_cast<size_t>(highest) + 1);
  for (auto& entry: stdio) {
    entry.flags = UV_IGNORE;
    entry.data.fd = -1;
  }
  for (auto& descriptor: options.descriptors) {
    stdio[static_cast<size_t>(descriptor.child)].flags = UV_INHERIT_FD;
    stdio[static_cast<size_t>(descriptor.child)].data.fd = descriptor.ours;
  }

  uv_process_options_t request = {};
  request.exit_cb = &State::onExit;
  request.file = arguments[0];
  request.args = arguments.begin();
  KJ_IF_MAYBE (words, options.environment) {
    variables = pointers(*words);
    request.env = variables.begin();
  }
  if (options.directory.size() > 0) request.cwd = options.directory.cStr();
  if (options.session == ChildOptions::Session::OWN) request.flags |= UV_PROCESS_DETACHED;
  request.stdio_count = highest + 1;
  request.stdio = stdio.begin();

  auto paf = kj::newPromiseAndFulfiller<ChildExit>();
  auto state = std::make_unique<State>(kj::mv(paf.fulfiller), options);
  int rc = uv_spawn(uv.raw(), &state->handle, &request);
  uv.poke();
  auto& owned = *state.release();  // libuv's, even after a failure: its close callback deletes it
  if (rc < 0) {
    owned.close();
    return spawnProblem(rc, options.argv[0]);
  }
  return kj::Own<Child>(kj::heap<Child>(uv, owned, kj::mv(paf.promise)));
}

Child::Child(UvLoop& uv, State& state, kj::Promise<ChildExit> exit)
    : uv(uv), state(state), exited(exit.fork()) {}

Child::~Child() noexcept(false) {
  if (state.done) {
    state.close();
  } else {
    // libuv reaps only what has an open handle: closing now would leave a zombie.
    if (state.onDrop == ChildOptions::OnDrop::KILL) {
      if (state.session == ChildOptions::Session::OWN) signal(SIGKILL, To::GROUP);
      signal(SIGKILL);
    }
    state.orphan = true;
  }
  uv.poke();
}

int Child::pid() const { return state.handle.pid; }

bool Child::running() const { return !state.done; }

bool Child::signal(int number, To to) {
  // libuv reaps in the loop's thread, so until `done` the number is this process's.
  if (state.done) return false;
  if (to == To::GROUP) {
    KJ_REQUIRE(state.session == ChildOptions::Session::OWN, "the child has no group of its own");
    return ::kill(-state.handle.pid, number) == 0;
  }
  return ::kill(state.handle.pid, number) == 0;
}

}  // namespace capstan
