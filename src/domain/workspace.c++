#include "domain/workspace.h"

#include <kj/vector.h>

#include <cstring>
#include <strings.h>

namespace capstan {

namespace {

using Text = kj::ArrayPtr<const char>;

constexpr size_t MOST_URL_BYTES = 2048;  // What browsers and servers agree on.
constexpr size_t MOST_REF_BYTES = 255;   // A file name of .git/refs.
constexpr size_t MOST_NAME_BYTES = 255;  // NAME_MAX of Linux.
constexpr size_t MOST_USER_BYTES = 32;   // Linux's own limit; tokens are longer.

// Clones in the making lie beside their place under names that begin so.
constexpr kj::StringPtr RESERVED_PREFIX = ".capstan-"_kj;

bool isControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

bool hasControl(Text text) {
  for (char c: text) {
    if (isControl(c)) return true;
  }
  return false;
}

bool isAlphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

kj::Maybe<size_t> find(Text text, char wanted) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == wanted) return i;
  }
  return nullptr;
}

bool contains(kj::StringPtr text, kj::StringPtr part) {
  return std::strstr(text.cStr(), part.cStr()) != nullptr;
}

Problem invalid(kj::String field, kj::String message) {
  return Problem(ErrorCode::INVALID_ARGUMENT, kj::mv(message)).at(kj::mv(field));
}

// ---- paths

bool isGitFolder(Text part) {
  return part.size() == 4 && strncasecmp(part.begin(), ".git", 4) == 0;
}

bool isUsablePart(Text part) {
  if (part.size() == 0 || part.size() > MOST_NAME_BYTES || part == "."_kj || part == ".."_kj) {
    return false;
  }
  if (part.size() >= RESERVED_PREFIX.size() &&
      part.slice(0, RESERVED_PREFIX.size()) == RESERVED_PREFIX) {
    return false;
  }
  return !isGitFolder(part);
}

bool isUsablePath(kj::StringPtr path) {
  if (path.size() == 0) return true;
  if (hasControl(path)) return false;
  Text rest = path;
  for (;;) {
    KJ_IF_MAYBE (slash, find(rest, '/')) {
      if (!isUsablePart(rest.slice(0, *slash))) return false;
      rest = rest.slice(*slash + 1, rest.size());
    } else {
      return isUsablePart(rest);
    }
  }
}

bool isWithin(kj::StringPtr inner, kj::StringPtr outer) {
  if (outer.size() == 0 || inner == outer) return true;
  return inner.startsWith(outer) && inner[outer.size()] == '/';
}

// ---- urls

Problem badUrl(kj::StringPtr field, kj::StringPtr why) {
  return invalid(kj::str(field, ".url"), kj::str("the url ", why))
      .advise(kj::str("use https://HOST/PATH, ssh://USER@HOST/PATH, USER@HOST:PATH or "
                      "git://HOST/PATH (administrators also file:///PATH)"));
}

// The url itself is not repeated: it holds what must not be shown.
Problem holdsPassword(kj::StringPtr field) {
  return invalid(kj::str(field, ".url"),
                 kj::str("the url holds a password, which would be stored and shown"))
      .advise(kj::str("leave it out and use a git credential helper or ssh"));
}

// A name or literal address, perhaps with a port. A '-' in front would be an option of ssh, a '%'
// would hide one.
bool isUsableHost(Text host) {
  Text name = host;
  Text port;
  if (host.size() > 0 && host[0] == '[') {
    KJ_IF_MAYBE (end, find(host, ']')) {
      name = host.slice(1, *end);
      auto rest = host.slice(*end + 1, host.size());
      if (rest.size() > 0) {
        if (rest[0] != ':') return false;
        port = rest.slice(1, rest.size());
      }
      for (char c: name) {
        if (!isAlphanumeric(c) && c != ':' && c != '.') return false;
      }
    } else {
      return false;
    }
  } else {
    KJ_IF_MAYBE (colon, find(host, ':')) {
      name = host.slice(0, *colon);
      port = host.slice(*colon + 1, host.size());
    }
    for (char c: name) {
      if (!isAlphanumeric(c) && c != '.' && c != '-' && c != '_') return false;
    }
  }
  if (name.size() == 0 || name[0] == '-' || port.size() > 5) return false;
  for (char c: port) {
    if (c < '0' || c > '9') return false;
  }
  return true;
}

bool isUsableUser(Text user) {
  for (char c: user) {
    if (!isAlphanumeric(c) && c != '.' && c != '-' && c != '_' && c != '+') return false;
  }
  return user.size() > 0 && user[0] != '-';
}

// [USER@]HOST, `ssh` or `https`.
Outcome checkAuthority(Text authority, kj::StringPtr field, kj::StringPtr scheme) {
  size_t hostBegin = 0;
  for (size_t i = 0; i < authority.size(); ++i) {
    if (authority[i] == '@') hostBegin = i + 1;  // The last one counts, as for git.
  }
  if (hostBegin > 0) {
    auto user = authority.slice(0, hostBegin - 1);
    if (find(user, ':') != nullptr) return holdsPassword(field);
    if (scheme == "git") return badUrl(field, "has a user, which git:// does not know");
    // Access tokens are often given as the user's name.
    if (user.size() > MOST_USER_BYTES) return holdsPassword(field);
    if (!isUsableUser(user)) return badUrl(field, "has a user's name that is not safe to use");
  }
  if (!isUsableHost(authority.slice(hostBegin, authority.size()))) {
    return badUrl(field, "has no usable host");
  }
  return nullptr;
}

Outcome checkSchemed(kj::StringPtr scheme, Text rest, kj::StringPtr field, Caller caller) {
  if (scheme == "file") {
    if (caller != Caller::ADMINISTRATOR) {
      return Problem(ErrorCode::DENIED, kj::str("only an administrator may clone file:// urls"))
          .at(kj::str(field, ".url"));
    }
    if (rest.size() < 2 || rest[0] != '/') {
      return badUrl(field, "needs an absolute path: file:///PATH");
    }
    return nullptr;
  }
  if (scheme != "https" && scheme != "ssh" && scheme != "git") {
    return badUrl(field, "is of a scheme that is not allowed");
  }
  KJ_IF_MAYBE (slash, find(rest, '/')) {
    KJ_IF_MAYBE (problem, checkAuthority(rest.slice(0, *slash), field, scheme)) {
      return kj::mv(*problem);
    }
    if (*slash + 1 == rest.size()) return badUrl(field, "names no repository");
    return nullptr;
  }
  return badUrl(field, "names no repository");
}

// USER@HOST:PATH
Outcome checkScpForm(Text url, kj::StringPtr field) {
  auto at = find(url, '@');
  KJ_IF_MAYBE (userEnd, at) {
    auto user = url.slice(0, *userEnd);
    if (find(user, ':') != nullptr) return holdsPassword(field);
    auto rest = url.slice(*userEnd + 1, url.size());
    KJ_IF_MAYBE (colon, find(rest, ':')) {
      auto host = rest.slice(0, *colon);
      auto path = rest.slice(*colon + 1, rest.size());
      if (isUsableUser(user) && isUsableHost(host) && path.size() > 0 && path[0] != '-' &&
          path[0] != ':') {
        return nullptr;
      }
    }
  }
  return badUrl(field, "is of no form that is allowed");
}

Outcome checkUrl(kj::StringPtr url, kj::StringPtr field, Caller caller) {
  if (url.size() == 0) return badUrl(field, "is empty");
  if (url.size() > MOST_URL_BYTES) {
    return badUrl(field, kj::str("has more than ", MOST_URL_BYTES, " bytes"));
  }
  if (hasControl(url)) return badUrl(field, "holds a control character");
  if (url[0] == '-') return badUrl(field, "begins with '-'");
  auto separator = std::strstr(url.cStr(), "://");
  if (separator == nullptr) return checkScpForm(url, field);
  size_t length = separator - url.begin();
  return checkSchemed(kj::str(url.slice(0, length)), url.slice(length + 3), field, caller);
}

// ---- refs

// The characters that git takes in no ref, and those that would make an expression of it.
bool isUsableRef(kj::StringPtr ref) {
  if (ref.size() > MOST_REF_BYTES || ref[0] == '-' || ref[0] == '/' || ref.endsWith("/") ||
      ref.endsWith(".") || ref.endsWith(".lock") || ref == "@") {
    return false;
  }
  for (char c: ref) {
    if (isControl(c) || std::strchr(" ~^:?*[\\", c) != nullptr) return false;
  }
  return !contains(ref, "..") && !contains(ref, "@{") && !contains(ref, "//");
}

}  // namespace

Repository Repository::clone() const {
  return Repository{kj::str(path), kj::str(url), kj::str(ref)};
}

bool Repository::operator==(const Repository& other) const {
  return path == other.path && url == other.url && ref == other.ref;
}

WorkspaceSpec WorkspaceSpec::ofDirectory(kj::String path) {
  WorkspaceSpec spec;
  spec.kind = Kind::DIRECTORY;
  spec.directory = kj::mv(path);
  return spec;
}

WorkspaceSpec WorkspaceSpec::clone() const {
  WorkspaceSpec result;
  result.kind = kind;
  result.directory = kj::str(directory);
  result.repositories = KJ_MAP(each, repositories) { return each.clone(); };
  result.sourceRoots = KJ_MAP(each, sourceRoots) { return kj::str(each); };
  result.reuseRequired = reuseRequired;
  return result;
}

bool WorkspaceSpec::isSamePlace(const WorkspaceSpec& other) const {
  return kind == other.kind && directory == other.directory && repositories == other.repositories &&
         sourceRoots == other.sourceRoots;
}

kj::String KJ_STRINGIFY(const WorkspaceSpec& spec) {
  kj::String place;
  switch (spec.kind) {
    case WorkspaceSpec::Kind::DEFAULT:
      place = kj::str("a directory of Capstan's");
      break;
    case WorkspaceSpec::Kind::DIRECTORY:
      place = kj::str(spec.directory);
      break;
    case WorkspaceSpec::Kind::REPOSITORIES: {
      kj::Vector<kj::String> clones;
      for (auto& each: spec.repositories) {
        clones.add(kj::str(each.url, each.ref.size() > 0 ? " at " : "", each.ref,
                           each.path.size() > 0 ? " in " : "", each.path));
      }
      place = kj::str("clones of ", kj::strArray(clones, ", "));
      break;
    }
  }
  if (spec.sourceRoots.size() == 0) return place;
  return kj::str(place, " with the source roots ", kj::strArray(spec.sourceRoots, ", "));
}

Outcome checkRepository(const Repository& repository, kj::StringPtr field, Caller caller) {
  if (!isUsablePath(repository.path)) {
    return invalid(kj::str(field, ".path"),
                   kj::str("a repository's folder must be a path below the workspace, without "
                           "'..', '.git' or names that begin with '",
                           RESERVED_PREFIX, "'"));
  }
  KJ_IF_MAYBE (problem, checkUrl(repository.url, field, caller)) {
    return kj::mv(*problem);
  }
  if (repository.ref.size() > 0 && !isUsableRef(repository.ref)) {
    return invalid(kj::str(field, ".ref"), kj::str("the ref is no branch, tag or commit"))
        .advise(kj::str("give a name as git branch, git tag or git log show it"));
  }
  return nullptr;
}

Outcome checkWorkspace(const WorkspaceSpec& spec, const Limits& limits, Caller caller) {
  auto isAbsolute = [&](kj::StringPtr path) {
    return path.startsWith("/") && path.size() <= limits.textBytes &&
           std::memchr(path.begin(), 0, path.size()) == nullptr;
  };
  if (spec.sourceRoots.size() > limits.repositories) {
    return invalid(kj::str("spec.workspace.sourceRoots"),
                   kj::str("more than ", limits.repositories, " source roots"));
  }
  for (size_t i = 0; i < spec.sourceRoots.size(); ++i) {
    if (!isAbsolute(spec.sourceRoots[i])) {
      return invalid(kj::str("spec.workspace.sourceRoots[", i, "]"),
                     kj::str("a source root must be an absolute path"));
    }
  }
  switch (spec.kind) {
    case WorkspaceSpec::Kind::DEFAULT:
      return nullptr;
    case WorkspaceSpec::Kind::DIRECTORY:
      if (isAbsolute(spec.directory)) return nullptr;
      return invalid(kj::str("spec.workspace.directory"),
                     kj::str("the workspace's directory must be an absolute path"));
    case WorkspaceSpec::Kind::REPOSITORIES:
      break;
  }
  auto& all = spec.repositories;
  if (all.size() == 0 || all.size() > limits.repositories) {
    return invalid(
        kj::str("spec.workspace.repositories"),
        kj::str("a workspace has 1 to ", limits.repositories, " repositories, not ", all.size()));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    auto field = kj::str("spec.workspace.repositories[", i, "]");
    KJ_IF_MAYBE (problem, checkRepository(all[i], field, caller)) {
      return kj::mv(*problem);
    }
    if (all[i].path.size() > limits.textBytes) {
      return invalid(kj::str(field, ".path"), kj::str("the folder's path is too long"));
    }
    for (size_t other = 0; other < i; ++other) {
      if (isWithin(all[i].path, all[other].path) || isWithin(all[other].path, all[i].path)) {
        return invalid(kj::str(field, ".path"),
                       kj::str("repositories ", other, " and ", i, " would lie in each other: '",
                               all[other].path, "' and '", all[i].path, "'"))
            .advise(kj::str("give each a folder of its own"));
      }
    }
  }
  return nullptr;
}

kj::String folderOfUrl(kj::StringPtr url) {
  auto text = url.asArray();
  while (text.size() > 0 && text.back() == '/')
    text = text.slice(0, text.size() - 1);
  if (text.size() > 4 && text.slice(text.size() - 4, text.size()) == ".git"_kj.asArray()) {
    text = text.slice(0, text.size() - 4);
  }
  size_t begin = text.size();
  while (begin > 0 && text[begin - 1] != '/' && text[begin - 1] != ':')
    --begin;
  auto name = text.slice(begin, text.size());
  if (!isUsablePart(name) || hasControl(name)) return kj::String();
  return kj::str(name);
}

}  // namespace capstan
