# shellcheck shell=bash disable=SC2034
# Sourced by tools/test, tools/quickstart and tools/lint: which Debian packages each of them needs,
# and how they are installed. Nothing here touches a machine that has them all.

# To build the programs: compiler, build tools, libraries.
build_packages="clang-19 binutils meson ninja-build pkg-config ccache patch xz-utils ca-certificates git
  libuv1-dev libssl-dev libsqlite3-dev libyaml-dev zlib1g-dev"
# The second platform of agentctl.
arm64_packages="g++-aarch64-linux-gnu binutils-aarch64-linux-gnu"
# To run all suites: sanitiser and fuzzing runtimes with their symbolizer, foreign programs.
test_packages="libclang-rt-19-dev llvm-19 qemu-user-static procps make"
lint_packages="clang-format-19 clang-tidy-19 shellcheck git python3"

# missing_packages NAME...: the names that dpkg does not call installed.
missing_packages() {
  local name missing="" there
  there=" $(dpkg-query -W -f='${db:Status-Status}:${Package} ' "$@" 2>/dev/null || true)"
  for name in "$@"; do
    case $there in *" installed:$name "*) ;; *) missing="$missing $name";; esac
  done
  echo "${missing# }"
}

# need_packages NAME...: installs what is missing when root, else fails with the command to run.
need_packages() {
  local missing log
  if ! command -v dpkg-query >/dev/null; then
    echo "not a Debian machine: the programs of these packages must be there: $*" >&2
    return 0
  fi
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    printf 'missing Debian packages. Run this once, then call me again:\n\n  ' >&2
    printf 'sudo apt-get update && sudo apt-get install -y --no-install-recommends %s\n' \
      "$missing" >&2
    return 1
  fi
  echo "installing: $missing"
  log=$(mktemp)
  # shellcheck disable=SC2086 # a list of package names
  if ! { DEBIAN_FRONTEND=noninteractive apt-get -q update &&
      DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $missing
    } >"$log" 2>&1 </dev/null; then
    tail -n 25 "$log" >&2; rm -f "$log"
    echo "apt could not install: $missing" >&2
    return 1
  fi
  rm -f "$log"
}

# need_node: node and npm, whoever installed them; Debian's only when there are none (its npm
# conflicts with other vendors' nodejs). Never fails: without them CAPSTAN_NO_NODE holds the reason,
# which is what skipped cases then show.
need_node() {
  if command -v node >/dev/null && command -v npm >/dev/null; then return 0; fi
  need_packages nodejs npm || true
  if command -v node >/dev/null && command -v npm >/dev/null; then return 0; fi
  CAPSTAN_NO_NODE="the packages nodejs and npm are not installed and could not be"
  export CAPSTAN_NO_NODE
}

# configure_build DIR [MESON-ARGUMENT...]: configures DIR once; later Meson runs again only if one of
# its own files changed.
configure_build() {
  local dir=$1 log; shift
  log=$(mktemp)
  if [ -f "$dir/build.ninja" ]; then
    ninja -C "$dir" build.ninja >"$log" 2>&1 && { rm -f "$log"; return 0; }
  else
    rm -rf "$dir"
    meson setup --native-file tools/native/clang-19.ini "$@" "$dir" >"$log" 2>&1 &&
      { rm -f "$log"; return 0; }
  fi
  cat "$log" >&2; rm -f "$log"
  return 1
}
