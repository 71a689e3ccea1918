// Which workspaces are refused, and why.
#include "domain/workspace.h"

#include "support/test.h"

#include <cstring>

namespace capstan {

namespace {

kj::String fieldOf(Outcome outcome) {
  KJ_IF_MAYBE (problem, outcome) {
    return kj::str(problem->field);
  }
  return kj::str("(fine)");
}

// "(fine)", or the name of the field at fault.
kj::String repository(kj::StringPtr path, kj::StringPtr url, kj::StringPtr ref = "",
                      Caller caller = Caller::ADMINISTRATOR) {
  return fieldOf(
      checkRepository(Repository{kj::str(path), kj::str(url), kj::str(ref)}, "r", caller));
}

bool contains(kj::StringPtr text, kj::StringPtr part) {
  return std::strstr(text.cStr(), part.cStr()) != nullptr;
}

constexpr kj::StringPtr URL = "https://git.example/a/b.git"_kj;

WorkspaceSpec clones(std::initializer_list<kj::StringPtr> paths) {
  WorkspaceSpec spec;
  spec.kind = WorkspaceSpec::Kind::REPOSITORIES;
  kj::Vector<Repository> all;
  for (auto path: paths)
    all.add(Repository{kj::str(path), kj::str(URL), kj::String()});
  spec.repositories = all.releaseAsArray();
  return spec;
}

}  // namespace

TEST_CASE("urls of the allowed forms are taken") {
  for (auto url:
       {"https://git.example/a/b.git", "https://git.example:8443/a", "https://org@git.example/a/b",
        "https://[2001:db8::1]:443/a", "ssh://git@git.example/a/b.git",
        "ssh://git.example:2222/~me/b", "git@git.example:a/b.git", "git@git.example:/srv/a",
        "git://git.example/a", "file:///srv/a b"}) {
    INFO(url);
    CHECK(repository("", url) == "(fine)");
  }
}

TEST_CASE("urls that git would take for something else are refused") {
  for (auto url: {"",
                  "-uhttps://git.example/a",
                  "--upload-pack=touch /tmp/x",
                  "ext::sh -c 'touch x'",
                  "http://git.example/a",
                  "ftp://git.example/a",
                  "HTTPS://git.example/a",
                  "/srv/a",
                  "../a",
                  "git.example:a",
                  "fd::17",
                  "ssh://-oProxyCommand=x/a",
                  "ssh://git@-oProxyCommand=x/a",
                  "ssh://%2doProxyCommand=x/a",
                  "ssh://-l@git.example/a",
                  "git@-oProxyCommand=x:a",
                  "-git@git.example:a",
                  "git@git.example:-a",
                  "git@git.example::a",
                  "git@git.example:",
                  "https://",
                  "https:///a",
                  "https://git.example",
                  "https://git.example/",
                  "https://git.exa mple/a",
                  "https://git.example:port/a",
                  "https://git.example/a\nb",
                  "https://git.example/a\x7f",
                  "git://me@git.example/a",
                  "file://host/a",
                  "file:///",
                  "https://[::1/a"}) {
    INFO(url);
    CHECK(repository("", url) == "r.url");
  }
  auto nul = kj::heapString("https://git.example/a_b");
  nul[21] = '\0';
  CHECK(repository("", nul) == "r.url");
  auto longest = kj::str("https://git.example/", kj::repeat('a', 2028));
  CHECK(repository("", longest) == "(fine)");
  CHECK(repository("", kj::str(longest, 'a')) == "r.url");
}

TEST_CASE("a password in a url is refused with the cure and not repeated") {
  for (auto url: {"https://me:hunter2@git.example/a", "ssh://me:hunter2@git.example/a",
                  "https://:hunter2@git.example/a", "me:hunter2@git.example:a",
                  "https://hunter2_0123456789012345678901234567@git.example/a"}) {
    INFO(url);
    auto problem = KJ_ASSERT_NONNULL(checkRepository(
        Repository{kj::String(), kj::str(url), kj::String()}, "r", Caller::ADMINISTRATOR));
    CHECK(problem.field == "r.url");
    CHECK(contains(problem.hint, "credential helper"));
    CHECK_FALSE(contains(kj::str(problem), "hunter2"));
  }
}

TEST_CASE("a local repository is for administrators") {
  CHECK(repository("", "file:///srv/a", "", Caller::ADMINISTRATOR) == "(fine)");
  auto problem = KJ_ASSERT_NONNULL(checkRepository(
      Repository{kj::String(), kj::str("file:///srv/a"), kj::String()}, "r", Caller::ORDINARY));
  CHECK(problem.code == ErrorCode::DENIED);
  CHECK(repository("", URL, "", Caller::ORDINARY) == "(fine)");
}

TEST_CASE("a repository's folder stays below the workspace") {
  for (auto path: {"", "a", "a/b", "..a", "a b", "-a", ".github"}) {
    INFO(path);
    CHECK(repository(path, URL) == "(fine)");
  }
  for (auto path: {"/a", "..", "a/..", "../a", "a/../b", ".", "./a", "a//b", "a/", ".git",
                   "a/.GIT/hooks", ".capstan-clone-1", "a\nb"}) {
    INFO(path);
    CHECK(repository(path, URL) == "r.path");
  }
  CHECK(repository(kj::str(kj::repeat('a', 255)), URL) == "(fine)");
  CHECK(repository(kj::str(kj::repeat('a', 256)), URL) == "r.path");
}

TEST_CASE("a ref is a name, never an option or an expression") {
  for (auto ref: {"main", "feature/x-1", "v1.2.3", "refs/heads/main",
                  "0123456789abcdef0123456789abcdef01234567", "@x"}) {
    INFO(ref);
    CHECK(repository("", URL, ref) == "(fine)");
  }
  for (auto ref: {"-b", "--upload-pack=x", "a..b", "a~1", "a^", "a:b", "a b", "a\nb", "@", "a@{1}",
                  "a*", "a?", "a[", "a\\b", "/a", "a/", "a//b", "a.", "a.lock"}) {
    INFO(ref);
    CHECK(repository("", URL, ref) == "r.ref");
  }
  CHECK(repository("", URL, kj::str(kj::repeat('a', 255))) == "(fine)");
  CHECK(repository("", URL, kj::str(kj::repeat('a', 256))) == "r.ref");
}

TEST_CASE("repositories lie beside each other, never in each other") {
  Limits limits;
  auto field = [&](const WorkspaceSpec& spec) {
    return fieldOf(checkWorkspace(spec, limits, Caller::ORDINARY));
  };
  CHECK(field(clones({""})) == "(fine)");
  CHECK(field(clones({"a", "ab", "b/a", "b/c"})) == "(fine)");
  CHECK(field(clones({"a", "a"})) == "spec.workspace.repositories[1].path");
  CHECK(field(clones({"a", "b", "a/c"})) == "spec.workspace.repositories[2].path");
  CHECK(field(clones({"a/c", "a"})) == "spec.workspace.repositories[1].path");
  CHECK(field(clones({"a", ""})) == "spec.workspace.repositories[1].path");
  CHECK(field(clones({"..", "a"})) == "spec.workspace.repositories[0].path");
  CHECK(field(clones({})) == "spec.workspace.repositories");
  limits.repositories = 2;
  CHECK(field(clones({"a", "b"})) == "(fine)");
  CHECK(field(clones({"a", "b", "c"})) == "spec.workspace.repositories");
}

TEST_CASE("directories and source roots are absolute") {
  Limits limits;
  auto field = [&](const WorkspaceSpec& spec) {
    return fieldOf(checkWorkspace(spec, limits, Caller::ORDINARY));
  };
  CHECK(field(WorkspaceSpec()) == "(fine)");
  CHECK(field(WorkspaceSpec::ofDirectory(kj::str("/srv"))) == "(fine)");
  CHECK(field(WorkspaceSpec::ofDirectory(kj::str("srv"))) == "spec.workspace.directory");
  CHECK(field(WorkspaceSpec::ofDirectory(kj::heapString("/a\0b", 4))) ==
        "spec.workspace.directory");
  WorkspaceSpec spec;
  spec.sourceRoots = kj::arr(kj::str("/a"), kj::str("b"));
  CHECK(field(spec) == "spec.workspace.sourceRoots[1]");
}

TEST_CASE("a workspace is compared by its content and told in words") {
  auto one = clones({"a", "b"});
  one.repositories[1].ref = kj::str("main");
  auto other = one.clone();
  CHECK(one.isSamePlace(other));
  CHECK_FALSE(one.isLeftOut());
  CHECK(kj::str(one) ==
        "clones of https://git.example/a/b.git in a, "
        "https://git.example/a/b.git at main in b");
  other.reuseRequired = true;
  CHECK(one.isSamePlace(other));
  other.repositories[0].ref = kj::str("v1");
  CHECK_FALSE(one.isSamePlace(other));
  CHECK(WorkspaceSpec().isLeftOut());
  CHECK_FALSE(WorkspaceSpec().isSamePlace(WorkspaceSpec::ofDirectory(kj::str("/a"))));
  CHECK(kj::str(WorkspaceSpec::ofDirectory(kj::str("/a"))) == "/a");
}

TEST_CASE("a clone's folder is named as git names it") {
  CHECK(folderOfUrl("https://git.example/a/b.git") == "b");
  CHECK(folderOfUrl("git@git.example:b") == "b");
  CHECK(folderOfUrl("file:///srv/b.git/") == "b");
  CHECK(folderOfUrl("https://git.example/..") == "");
  CHECK(folderOfUrl("https://git.example/.git") == "");
}

}  // namespace capstan
