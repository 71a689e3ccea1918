#!/usr/bin/env python3
"""headers.py BUILD-FOLDER: every header of src/ and backends/ compiles alone.

A header whose own source includes it before anything else is proved by the build itself; only the
others are compiled here, as an object that ccache remembers, with the flags of a source beside it.
"""
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tap import ROOT, Cases, read, tracked_files

FIRST_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.M)


def include_name(header):
    """How our sources name a header: below src/, or below the root for backends/."""
    return str(header.relative_to("src")) if header.parts[0] == "src" else str(header)


def proved_by(header, compiled):
    """Whether a compiled source of the same stem includes the header first."""
    source = header.with_suffix(".c++")
    if (ROOT / source).resolve() not in compiled:
        return False
    first = FIRST_INCLUDE.search(read(source))
    return first is not None and first[1] == include_name(header)


def compile_commands(build):
    """{source: words of its command} of our own sources for this machine's platform."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = (Path(entry["directory"]) / entry["file"]).resolve()
        if source.suffix == ".c++" and "--target=" not in entry["command"]:
            commands.setdefault(source, shlex.split(entry["command"]))
    return commands


def command_for(header, commands, stub, output):
    """The command of the nearest source (same folder, else same top folder, else any of src/)."""
    near = [ROOT / header.parent, ROOT / header.parts[0], ROOT / "src"]
    for folder in near:
        for source, words in sorted(commands.items()):
            if folder.resolve() in source.parents:
                return replace_files(words, stub, output)
    return None


def replace_files(words, stub, output):
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in ("-o", "-MF", "-MQ", "-c"):
            skip = True
        elif word not in ("-MD", "-g", "-O2", "-fcolor-diagnostics"):
            kept.append(word)
    return [*kept, "-g0", "-O0", "-Wno-unused-function", "-o", str(output), "-c", str(stub)]


def write_stub(folder, header):
    """A source that includes only the header, rewritten only when it differs (for ccache)."""
    stub = folder / (str(header).replace("/", "-") + ".c++")
    text = f'#include "{include_name(header)}"\n'
    if not stub.exists() or stub.read_text() != text:
        stub.write_text(text)
    return stub


def main():
    build = Path(sys.argv[1]).resolve()
    cases = Cases()
    headers = [name for name in tracked_files("src/", "backends/") if name.suffix == ".h"]
    commands = compile_commands(build)
    # What a library's users are given, its own sources are not.
    defines = {word for words in commands.values() for word in words
               if word.startswith("-DCAPSTAN_")}
    folder = build / "tests/style/headers"
    folder.mkdir(parents=True, exist_ok=True)

    def compile_alone(header):
        stub = write_stub(folder, header)
        command = command_for(header, commands, stub, stub.with_suffix(".o"))
        if command is None:
            return f"{header}: no compiled source to take the flags from"
        run = subprocess.run([*command, *defines], cwd=build, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
        errors = [line for line in run.stdout.splitlines() if "error:" in line]
        return None if run.returncode == 0 else (errors or [f"{header}: did not compile"])[0]

    by_folder = {}
    for header in headers:
        by_folder.setdefault(header.parent, []).append(header)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, group in sorted(by_folder.items()):
            alone = [header for header in group if not proved_by(header, commands)]
            problems = [problem for problem in pool.map(compile_alone, alone) if problem]
            print(f"{name}: {len(group)} headers, {len(alone)} compiled here", file=sys.stderr)
            cases.check(f"headers of {name} compile alone", problems)
    cases.end()


if __name__ == "__main__":
    main()
