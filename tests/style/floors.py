#!/usr/bin/env python3
"""Who may include whom: the floors table of docs/architecture.md against every #include.

With an argument (tests/style/floors.py --self-test) it proves that it can fail.
"""
import re
import sys
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from tap import Cases, read, tracked_files

SCHEMAS = {name.stem for name in tracked_files("schema/*.capnp")}
LIBRARIES = {
    "libuv": re.compile(r"uv(\.h|/)"),
    "OpenSSL": re.compile(r"openssl/"),
    "SQLite": re.compile(r"sqlite3(ext)?\.h"),
    "libssh2": re.compile(r"libssh2\w*\.h"),
    "libyaml": re.compile(r"yaml\.h"),
}
RUNTIME_WORDS = {
    "docker", "dockerd", "dockerfile", "podman", "moby", "containerd", "container", "containers",
    "ssh", "sshd", "sftp", "scp", "libssh2", "kubernetes", "k8s", "kubectl", "kubelet",
    "kubeconfig", "kube", "pod", "pods", "sprites",
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
# Comments, raw strings, strings, characters; in this order a comment sign in a string is no comment.
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^()\\ ]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
                   r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'", re.S)


def without_comments(text):
    return TOKEN.sub(lambda match: " " if match[0][:2] in ("//", "/*") else match[0], text)


def words_of(text):
    """The words in identifiers and strings: `sshLink`, `SSH_LINK` and "ssh-link" hold `ssh`."""
    for run in re.findall(r"[A-Za-z0-9]+", text):
        yield run.lower()
        for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", run):
            yield part.lower()


def read_table(text, mark):
    """The rows between two marks: {first cell: names in the second}, None = everything."""
    table = {}
    inside = text.split(f"<!-- {mark} -->")[1].split(f"<!-- /{mark} -->")[0]
    for line in inside.strip().splitlines()[2:]:
        folder, allowed = line.split("|")[1:3]
        folder = folder.strip().strip("`")
        table[folder] = None if allowed.strip() == "everything" else re.findall(r"`([^`]+)`",
                                                                               allowed)
    return table


def floor_of(name):
    """The table's folder for a file, given as a path from the repository's root."""
    parts = PurePosixPath(name).parts
    if parts[0] == "backends":
        return str(name) if len(parts) == 2 else "/".join(parts[:2])
    return "/".join(parts[:2]) if parts[0] == "src" else parts[0]


def row_of(floor, table):
    if floor in table:
        return floor
    return "backends/*" if floor.startswith("backends/") else None


def target_of(included, source, files):
    """What an #include of ours means: a file of the tree, `schema/NAME`, or None (foreign)."""
    if included.endswith(".capnp.h"):
        stem = PurePosixPath(included).name.removesuffix(".capnp.h")
        return f"schema/{stem}" if stem in SCHEMAS and "/" not in included else None
    for candidate in (f"src/{included}", included, str(source.parent / included)):
        if candidate in files:
            return candidate
    return None


def may_include(source, target, table):
    floor, row = floor_of(source), row_of(floor_of(source), table)
    allowed = table[row]
    wanted = target if target.startswith("schema/") else floor_of(target)
    if allowed is None or wanted == floor:
        return True
    return wanted in allowed or (wanted.startswith("schema/") and "schema" in allowed)


def floor_problems(sources, table):
    """sources: {path: text}. One line for each #include that the table does not allow."""
    problems, files = [], {str(path) for path in sources}
    for path, text in sources.items():
        if row_of(floor_of(path), table) is None:
            problems.append(f"{path}: no row for '{floor_of(path)}' in docs/architecture.md")
            continue
        for quote, included in INCLUDE.findall(without_comments(text)):
            target = target_of(included, path, files)
            if target is None:
                if quote == '"':
                    problems.append(f'{path}: "{included}" is no file of the tree')
            elif quote == "<":
                problems.append(f"{path}: <{included}> is ours: use quotes")
            elif not may_include(path, target, table):
                problems.append(f"{path} may not include {included}")
    return problems


def library_problems(pattern, family, sources):
    """`family` are the files (with wildcards) that may include a library's headers, or a header of
    ours that does."""
    def belongs(path):
        return any(fnmatch(str(path), glob) for glob in family)

    users = [path for path, text in sources.items()
             if any(pattern.match(name) for _, name in INCLUDE.findall(without_comments(text)))]
    problems = [f"{path} includes its headers" for path in users if not belongs(path)]
    headers = {str(path) for path in users if path.suffix == ".h"}
    files = {str(path) for path in sources}
    for path, text in sources.items():
        for _, included in INCLUDE.findall(without_comments(text)):
            if target_of(included, path, files) in headers and not belongs(path):
                problems.append(f"{path} includes {included}, which includes its headers")
    return problems


def runtime_words(sources):
    return [f"{path}: '{word}'" for path, text in sources.items()
            if floor_of(path) == "src/core"
            for word in sorted(RUNTIME_WORDS.intersection(words_of(without_comments(text))))]


def self_test(cases, table):
    """Made-up files that break each rule once."""
    def broken(name, text, *others):
        sources = {Path(name): text, **{Path(other): "" for other in others}}
        return sources

    up = floor_problems(broken("src/base/a.h", '#include "core/b.h"\n', "src/core/b.h"), table)
    side = floor_problems(broken("backends/ssh/a.h", '#include "backends/docker/b.h"\n',
                                 "backends/docker/b.h"), table)
    schema = floor_problems(broken("src/domain/a.h", '#include "environment.capnp.h"\n'), table)
    fine = floor_problems(broken("src/rpc/a.h", '#include "core/b.h"\n#include <kj/async.h>\n'
                                 '// #include "tools/x.h"\n', "src/core/b.h"), table)
    cases.check("an arrow up is seen", [] if up else ["it was not"])
    cases.check("an arrow between backends is seen", [] if side else ["it was not"])
    cases.check("the client interface below rpc is seen", [] if schema else ["it was not"])
    cases.check("an allowed arrow passes", fine)
    word = runtime_words(broken("src/core/a.c++", 'auto x = sshLink("a // b"); // docker\n'))
    cases.check("a runtime's word in core is seen, in a comment it is not",
                [] if word == ["src/core/a.c++: 'ssh'"] else [str(word)])
    leak = library_problems(LIBRARIES["libuv"], ["src/transport/uv-*"], {
        Path("src/transport/uv-loop.h"): "#include <uv.h>\n",
        Path("src/transport/child.c++"): '#include "transport/uv-loop.h"\n'})
    cases.check("a library's header that leaks is seen", [] if leak else ["it was not"])


def main():
    cases = Cases()
    page = read(Path("docs/architecture.md"))
    table = read_table(page, "floors")
    if sys.argv[1:] == ["--self-test"]:
        self_test(cases, table)
        cases.end()
    sources = {name: read(name) for name in tracked_files("src/", "backends/", "tools/")
               if name.suffix in (".h", ".c++")}
    cases.check("every #include points to an allowed floor", floor_problems(sources, table))
    cases.check("src/core holds no word of a runtime", runtime_words(sources))
    families = read_table(page, "libraries")
    for library, pattern in LIBRARIES.items():
        cases.check(f"{library} is known to its family of files only",
                    library_problems(pattern, families.get(library, []), sources))
    cases.end()


if __name__ == "__main__":
    main()
