#include "domain/clone-script.h"

namespace capstan {

namespace {

// The script's exit codes; others are those of programs that failed.
constexpr int KEPT = 70;
constexpr int OTHER_ORIGIN = 71;
constexpr int NO_REF = 72;
constexpr int OCCUPIED = 73;
constexpr int LOST = 74;
constexpr int NO_GIT = 75;

constexpr kj::StringPtr SCRIPT = R"sh({
url=$CAPSTAN_CLONE_URL ref=$CAPSTAN_CLONE_REF mode=$CAPSTAN_CLONE_MODE
target=$CAPSTAN_CLONE_TARGET base=$CAPSTAN_CLONE_BASE fresh=$base/.capstan-clone-$CAPSTAN_CLONE_ATTEMPT
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_COMMON_DIR GIT_NAMESPACE

fail() { code=$1; shift; printf '%s\n' "$*" >&2; exit "$code"; }
there() { [ -e "$1" ] || [ -h "$1" ]; }
# No entries but attempts of ours and what file systems make.
empty() {
  for entry in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    case ${entry##*/} in .capstan-clone-*|lost+found) continue ;; esac
    if there "$entry"; then return 1; fi
  done
}
# Into a workspace's root, entry by entry; .git comes last and makes it a clone. The mark tells the
# next attempt that all of the clone was there.
settle() {
  : >"$1/.git/capstan-settling" || return 1
  for entry in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    if [ "${entry##*/}" = .git ] || ! there "$entry"; then continue; fi
    mv -- "$entry" "$target/" || return 1
  done
  mv -- "$1/.git" "$target/.git" && rm -f -- "$target/.git/capstan-settling" && rmdir -- "$1"
}
checkout() { git -c advice.detachedHead=false checkout -f --progress "$@"; }

if [ "$mode" = check ]; then
  if there "$target/.git" || { [ -d "$target" ] && ! empty "$target"; }; then exit 70; fi
  fail 74 'the clone is gone'
fi
command -v git >/dev/null || fail 75 'git: not found'
if [ "$target" = "$base" ] && ! there "$target/.git"; then
  for old in "$base"/.capstan-clone-*; do
    if [ -e "$old/.git/capstan-settling" ]; then settle "$old"; exit; fi
  done
fi
for old in "$base"/.capstan-clone-*; do
  if there "$old"; then rm -rf -- "$old"; fi
done
if there "$target/.git"; then
  # Without the checks of a repository's owner: the place may be a volume of another user.
  have=$(git config --file "$target/.git/config" --get remote.origin.url)
  if [ "$have" = "$url" ]; then echo 'the clone is there already'; exit 70; fi
  fail 71 'there is a clone of another repository'
fi
if there "$target" && { [ ! -d "$target" ] || ! empty "$target"; }; then
  fail 73 'there are other files'
fi
[ "$mode" = make ] || fail 74 'there is no clone'

mkdir -p -- "$base" || exit
git clone --progress --no-checkout -- "$url" "$fresh" || { code=$?; rm -rf -- "$fresh"; exit "$code"; }
(
  cd -- "$fresh" || exit
  branch=${ref#refs/heads/} tag=${ref#refs/tags/}
  if [ -z "$ref" ]; then
    if git rev-parse -q --verify HEAD >/dev/null; then checkout; fi
  elif git rev-parse -q --verify "refs/heads/$branch" >/dev/null; then
    checkout "$branch" --
  elif git rev-parse -q --verify "refs/remotes/origin/$branch" >/dev/null; then
    checkout -b "$branch" --track "refs/remotes/origin/$branch"
  elif git rev-parse -q --verify "refs/tags/$tag" >/dev/null; then
    checkout --detach "refs/tags/$tag"
  else
    case $ref in
      *[!0-9a-fA-F]*) ;;
      *) if git cat-file -e "$ref^{commit}" 2>/dev/null; then checkout --detach "$ref"; exit; fi ;;
    esac
    git fetch --progress -- origin "$ref" || fail 72 'no branch, tag or commit of that name'
    checkout --detach FETCH_HEAD
  fi
) || { code=$?; rm -rf -- "$fresh"; exit "$code"; }

if [ "$target" = "$base" ]; then settle "$fresh"; exit; fi
if [ -d "$target" ]; then rmdir -- "$target" || exit; fi
mv -- "$fresh" "$target"
} </dev/null
)sh"_kj;

kj::StringPtr modeWord(CloneMode mode) {
  switch (mode) {
    case CloneMode::MAKE:
      return "make";
    case CloneMode::REUSE:
      return "reuse";
    case CloneMode::CHECK:
      break;
  }
  return "check";
}

}  // namespace

kj::StringPtr cloneScript() { return SCRIPT; }

kj::Array<ProcessVariable> cloneVariables(const Repository& repository, kj::StringPtr workspace,
                                          CloneMode mode, Caller caller, kj::StringPtr attempt) {
  auto target = kj::str(workspace, repository.path.size() > 0 ? "/" : "", repository.path);
  auto base = kj::str(workspace);
  KJ_IF_MAYBE (slash, repository.path.findLast('/')) {
    base = kj::str(workspace, '/', repository.path.slice(0, *slash));
  }
  auto protocols = caller == Caller::ADMINISTRATOR ? "https:ssh:git:file"_kj : "https:ssh:git"_kj;
  kj::Vector<ProcessVariable> all;
  auto set = [&all](kj::StringPtr key, kj::StringPtr value) {
    all.add(ProcessVariable{kj::str(key), kj::str(value)});
  };
  set("GIT_ALLOW_PROTOCOL", protocols);
  set("GIT_TERMINAL_PROMPT", "0");
  set("CAPSTAN_CLONE_URL", repository.url);
  set("CAPSTAN_CLONE_REF", repository.ref);
  set("CAPSTAN_CLONE_TARGET", target);
  // A root is cloned within itself, a folder beside itself.
  set("CAPSTAN_CLONE_BASE", base);
  set("CAPSTAN_CLONE_MODE", modeWord(mode));
  set("CAPSTAN_CLONE_ATTEMPT", attempt);
  return all.releaseAsArray();
}

CloneEnd cloneEnd(int exitCode) {
  return exitCode == 0 ? CloneEnd::MADE : exitCode == KEPT ? CloneEnd::KEPT : CloneEnd::FAILED;
}

Problem cloneProblem(int exitCode, const Repository& repository, kj::StringPtr field,
                     kj::String lastLine) {
  auto place = repository.path.size() > 0 ? kj::str("the workspace's folder ", repository.path)
                                          : kj::str("the workspace");
  switch (exitCode) {
    case OTHER_ORIGIN:
      return Problem(ErrorCode::WRONG_STATE,
                     kj::str(place, " holds a clone of another repository than ", repository.url))
          .at(kj::str(field))
          .advise(kj::str("move it away or use another task; it was not touched"))
          .retryable(RetryHint::AFTER_USER_ACTION);
    case OCCUPIED:
      return Problem(ErrorCode::WRONG_STATE,
                     kj::str(place, " holds files and no clone of ", repository.url))
          .at(kj::str(field))
          .advise(kj::str("move them away or use another task; they were not touched"))
          .retryable(RetryHint::AFTER_USER_ACTION);
    case LOST:
      return Problem(ErrorCode::WORKSPACE_LOST,
                     kj::str("the clone of ", repository.url, " is not in ", place))
          .at(kj::str(field))
          .advise(kj::str("destroy the environment and make a new one"))
          .retryable(RetryHint::AFTER_USER_ACTION);
    case NO_REF:
      return Problem(ErrorCode::PREPARE_FAILED,
                     kj::str(repository.url, " has no branch, tag or commit ", repository.ref))
          .at(kj::str(field, ".ref"))
          .because(kj::mv(lastLine))
          .from("git", kj::str(exitCode))
          .retryable(RetryHint::AFTER_USER_ACTION);
    case NO_GIT:
      return Problem(ErrorCode::PREPARE_FAILED, kj::str("the environment has no git"))
          .at(kj::str(field))
          .advise(kj::str("install git where the environment runs"))
          .retryable(RetryHint::AFTER_USER_ACTION);
    default:
      return Problem(ErrorCode::PREPARE_FAILED, kj::str("cannot clone ", repository.url))
          .at(kj::str(field))
          .because(kj::mv(lastLine))
          .advise(kj::str("git must reach it without asking: a credential helper or an ssh key "
                          "where the environment runs"))
          .from("git", kj::str(exitCode))
          .retryable(RetryHint::AFTER_USER_ACTION);
  }
}

}  // namespace capstan
