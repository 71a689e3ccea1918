#include "agentctl/launch-plan.h"

#include "wire/sha256.h"

#include <kj/debug.h>
#include <kj/io.h>
#include <kj/map.h>

#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace capstan {

namespace {

constexpr kj::StringPtr DEFAULT_PATH =
    "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"_kj;
constexpr kj::StringPtr DEFAULT_TERM = "xterm-256color"_kj;
constexpr size_t MAX_PASSWD_BYTES = 4 << 20;

using Text = kj::ArrayPtr<const char>;

bool hasNul(Text text) { return std::memchr(text.begin(), 0, text.size()) != nullptr; }

Problem invalid(kj::String message, kj::String field) {
  return Problem(ErrorCode::INVALID_ARGUMENT, kj::mv(message)).at(kj::mv(field));
}

Problem checkKey(kj::StringPtr key, kj::String field) {
  return invalid(kj::str("'", key, "' is no name of a variable"), kj::mv(field));
}

bool isKey(kj::StringPtr key) {
  return key.size() > 0 && key.findFirst('=') == nullptr && !hasNul(key);
}

struct Variable {
  Text key;
  Text value;
};

// Counts, then copies the same strings in the same order.
class Writer {
public:
  Writer(char* at): at(at) {}
  char* add(std::initializer_list<Text> parts) {
    char* begin = at;
    for (auto part: parts) {
      if (part.size() > 0) std::memcpy(at, part.begin(), part.size());
      at += part.size();
    }
    *at++ = 0;
    return begin;
  }

private:
  char* at;
};

}  // namespace

Result<kj::Own<LaunchPlan>> LaunchPlan::from(agentctl::InstanceConfig::Reader config,
                                             kj::StringPtr home) {
  // Every text is taken from the message once: each look at one counts against its limit.
  auto command = KJ_MAP(word, config.getCommand())->kj::StringPtr { return word; };
  if (command.size() == 0 || command[0].size() == 0) {
    return invalid(kj::str("there is no command"), kj::str("command"));
  }
  auto directory = config.getWorkingDirectory();
  if (!directory.startsWith("/") || hasNul(directory)) {
    return invalid(kj::str("the working directory must be absolute"), kj::str("workingDirectory"));
  }
  for (auto word: command) {
    if (hasNul(word)) return invalid(kj::str("a word holds a NUL"), kj::str("command"));
  }

  kj::HashMap<kj::StringPtr, kj::ArrayPtr<const char>> all;
  auto set = [&](kj::StringPtr key, Text value) {
    all.upsert(key, value, [](auto& existing, auto&& replacement) { existing = replacement; });
  };
  if (home.size() > 0) set("HOME", home);
  if (config.hasTerminal()) set("TERM", DEFAULT_TERM);
  for (auto variable: config.getVariables()) {
    kj::StringPtr key = variable.getKey();
    kj::StringPtr value = variable.getValue();
    if (!isKey(key)) return checkKey(key, kj::str("variables"));
    if (hasNul(value)) {
      return invalid(kj::str("the value of ", key, " holds a NUL"), kj::str("variables.", key));
    }
    set(key, value);
  }
  if (config.hasTerminal() && config.getTerminal().getTerm().size() > 0) {
    set("TERM", config.getTerminal().getTerm());
  }
  for (auto secret: config.getSecrets()) {
    kj::StringPtr key = secret.getKey();
    if (!isKey(key)) return checkKey(key, kj::str("secrets"));
    auto value = secret.getValue().asChars();
    if (hasNul(value)) {
      return invalid(kj::str("the value of ", key, " holds a NUL"), kj::str("secrets.", key));
    }
    set(key, value);
  }

  kj::Vector<Text> folders;
  kj::StringPtr program = command[0];
  if (program.findFirst('/') == nullptr) {
    Text path = DEFAULT_PATH;
    KJ_IF_MAYBE (given, all.find("PATH"_kj)) {
      path = *given;
    }
    size_t begin = 0;
    for (size_t i = 0; i <= path.size(); ++i) {
      if (i < path.size() && path[i] != ':') continue;
      folders.add(i == begin ? Text("."_kj) : path.slice(begin, i));
      begin = i + 1;
    }
  }

  size_t pointers = std::max<size_t>(folders.size(), 1) + 1 + command.size() + 1 + all.size() + 1;
  size_t size = pointers * sizeof(char*) + directory.size() + 1 + program.size() + 1;
  for (auto folder: folders) {
    size += folder.size() + 1 + program.size() + 1;
  }
  for (auto word: command) {
    size += word.size() + 1;
  }
  for (auto& entry: all) {
    size += entry.key.size() + 1 + entry.value.size() + 1;
  }

  void* mapping = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return Problem(ErrorCode::RESOURCE_EXHAUSTED, kj::str("no memory for the process's variables"));
  }
  madvise(mapping, size, MADV_DONTDUMP);
  auto plan =
      kj::Own<LaunchPlan>(new LaunchPlan(mapping, size), kj::_::HeapDisposer<LaunchPlan>::instance);
  auto pointer = static_cast<char**>(mapping);
  Writer writer(static_cast<char*>(mapping) + pointers * sizeof(char*));
  plan->paths = pointer;
  for (auto folder: folders) {
    *pointer++ = writer.add({folder, "/"_kj, program});
  }
  if (folders.empty()) *pointer++ = writer.add({program});
  *pointer++ = nullptr;
  plan->argv = pointer;
  for (auto word: command) {
    *pointer++ = writer.add({word});
  }
  *pointer++ = nullptr;
  plan->envp = pointer;
  for (auto& entry: all) {
    *pointer++ = writer.add({entry.key, "="_kj, entry.value});
  }
  *pointer++ = nullptr;
  plan->directory = writer.add({directory});
  return kj::mv(plan);
}

LaunchPlan::~LaunchPlan() noexcept(false) {
  wipe();
  munmap(mapping, size);
}

void LaunchPlan::wipe() { zeroBytes(kj::arrayPtr(static_cast<kj::byte*>(mapping), size)); }

kj::String homeOf(unsigned uid, kj::StringPtr passwdFile) {
  int fd = open(passwdFile.cStr(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  kj::AutoCloseFd owned(fd);
  kj::Vector<char> text;
  char buffer[8192];
  ssize_t n;
  while (text.size() < MAX_PASSWD_BYTES && (n = read(fd, buffer, sizeof(buffer))) > 0) {
    text.addAll(buffer, buffer + n);
  }
  Text rest = text;
  while (rest.size() > 0) {
    size_t length = 0;
    while (length < rest.size() && rest[length] != '\n') {
      ++length;
    }
    Text line = rest.slice(0, length);
    rest = rest.slice(std::min(length + 1, rest.size()), rest.size());
    // passwd(5): name:password:UID:GID:GECOS:directory:shell
    Text fields[7];
    size_t begin = 0, field = 0;
    for (size_t i = 0; i <= line.size() && field < 7; ++i) {
      if (i < line.size() && line[i] != ':') continue;
      fields[field++] = line.slice(begin, i);
      begin = i + 1;
    }
    if (field < 6) continue;
    if (kj::str(fields[2]) == kj::str(uid)) return kj::str(fields[5]);
  }
  return nullptr;
}

void wipeSecrets(agentctl::InstanceConfig::Reader config) {
  for (auto secret: config.getSecrets()) {
    auto value = secret.getValue();
    // The message is ours alone: nobody else reads these octets again.
    zeroBytes(kj::arrayPtr(const_cast<kj::byte*>(value.begin()), value.size()));
  }
}

}  // namespace capstan
