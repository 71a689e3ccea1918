#!/usr/bin/env python3
"""House rules of the tree: sizes, words left behind, machine paths, run bits, links, schemas."""
import os
import re
import shutil
import subprocess
from pathlib import Path

from tap import ROOT, Cases, read, tracked_files

MOST_LINES = 500
# Written in halves, so that this file holds none of them.
LEFT_BEHIND = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
# Folders that are no one machine's own.
COMMON_ROOTS = {"/", "/tmp", "/var/tmp", "/home", "/root", "/opt", "/srv", "/usr", "/usr/src",
                "/usr/local", "/usr/local/src", "/var", "/mnt", "/build", "/src"}
PERSONAL = re.compile(r"(?<![\w./-])/(?:home|Users)/(?!USER\b|NAME\b|\*)[A-Za-z0-9_.-]+")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def is_script(name, text):
    return text.startswith("#!")


def too_long(texts):
    return [f"{name}: {lines} lines" for name, text in texts.items()
            if (name.suffix in (".c++", ".h", ".py", ".capnp", ".sh") or is_script(name, text))
            and (lines := text.count("\n")) > MOST_LINES]


def lines_with(pattern, texts):
    found = []
    for name, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            if match := pattern.search(line):
                found.append(f"{name}:{number}: {match[0]}")
    return found


def machine_paths():
    """A pattern for this checkout's own folder and the one around it."""
    folders = {str(ROOT)} | ({str(ROOT.parent)} - COMMON_ROOTS)
    names = "|".join(re.escape(folder) for folder in sorted(folders - COMMON_ROOTS))
    return re.compile(rf"(?<![\w./-])(?:{names})/") if names else None


def configured_hosts():
    """The hosts of the package registries that this machine is set up for."""
    texts = []
    for path in [Path("/etc/apt/sources.list"), *Path("/etc/apt").glob("sources.list.d/*")]:
        try:
            texts.append(path.read_text(errors="replace"))
        except OSError:
            continue  # not there, or not for us
    if shutil.which("npm"):
        try:
            texts.append(subprocess.run(["npm", "config", "get", "registry"], timeout=20,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        cwd="/", text=True).stdout)
        except subprocess.TimeoutExpired:
            pass  # then npm's host is not looked for
    return set(re.findall(r"https?://(?:[^/@\s]*@)?([^/:\s\]]+)", "\n".join(texts)))


def host_lines(hosts, texts):
    if not hosts:
        return []
    return lines_with(re.compile("|".join(map(re.escape, sorted(hosts)))), texts)


def run_bits(texts):
    problems = []
    for name, text in texts.items():
        runs = os.access(ROOT / name, os.X_OK)
        if is_script(name, text) and not runs:
            problems.append(f"{name}: begins with #! but has no run bit")
        if runs and not is_script(name, text):
            problems.append(f"{name}: has a run bit but no #! line")
    return problems


def slug(heading):
    """A heading's anchor as the usual viewers make it."""
    text = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def broken_links(texts):
    problems = []
    for name, text in texts.items():
        if name.suffix != ".md":
            continue
        plain = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
        for link in LINK.findall(plain):
            if re.match(r"[a-z]+:", link):
                continue
            file, _, anchor = link.partition("#")
            target = (ROOT / name.parent / file).resolve() if file else ROOT / name
            if not target.exists():
                problems.append(f"{name}: {link} leads nowhere")
            elif anchor and target.suffix == ".md":
                headings = re.findall(r"^#+ +(.+)$", target.read_text(), re.M)
                if anchor not in map(slug, headings):
                    problems.append(f"{name}: {link}: no such heading")
    return problems


def schemas_without_cancellation(texts):
    return [str(name) for name, text in texts.items() if name.suffix == ".capnp"
            and not re.search(r"^\$Cxx\.allowCancellation;", text, re.M)]


def undocumented_errors():
    """Codes of the schema's list without a row in docs/errors.md, and rows without a code."""
    enum = re.search(r"enum ErrorCode \{(.*?)\}", read(Path("schema/error.capnp")), re.S)[1]
    codes = set(re.findall(r"^\s*(\w+) @\d+;", enum, re.M)) - {"none"}
    table = read(Path("docs/errors.md")).split("\n## The codes\n")[1]
    rows = set(re.findall(r"^\| `(\w+)` \|", table, re.M))
    return ([f"no row for {code}" for code in sorted(codes - rows)]
            + [f"no such code: {row}" for row in sorted(rows - codes)])


def main():
    cases = Cases()
    texts = {name: text for name in tracked_files()
             if (text := read(name)) is not None and not (ROOT / name).is_symlink()}
    paths, hosts = machine_paths(), configured_hosts()
    cases.check(f"no source file is longer than {MOST_LINES} lines", too_long(texts))
    cases.check("no words of work left behind", lines_with(LEFT_BEHIND, texts))
    cases.check("no path of this machine or of a person's home",
                (lines_with(paths, texts) if paths else [])
                + lines_with(PERSONAL, {name: text for name, text in texts.items()
                                        if name.parts[0] != "tests"}))  # made-up homes
    cases.check("no host of a package registry", host_lines(hosts, texts))
    cases.check("scripts, and only scripts, have the run bit", run_bits(texts))
    cases.check("links in the documents lead somewhere", broken_links(texts))
    cases.check("every schema allows cancellation", schemas_without_cancellation(texts))
    cases.check("docs/errors.md has every error code", undocumented_errors())
    # Each rule sees what breaks it, or its silence would mean nothing.
    sample = {Path("a.h"): "x\n" * (MOST_LINES + 1), Path("b.md"): "[x](no/such.md)\n",
              Path("c.capnp"): "struct A {}\n", Path("d"): "#!/bin/sh\n/home/someone/x\n"}
    blind = [rule for rule, seen in (
        ("sizes", too_long(sample)), ("links", broken_links(sample)),
        ("cancellation", schemas_without_cancellation(sample)), ("run bits", run_bits(sample)),
        ("homes", lines_with(PERSONAL, sample)),
        ("hosts", host_lines({"registry.example"}, {Path("e"): "at registry.example\n"})),
        ("words", lines_with(LEFT_BEHIND, {Path("f"): "// TO" + "DO: x\n"}))) if not seen]
    cases.check("every rule above sees a made-up breach", blind)
    cases.end()


if __name__ == "__main__":
    main()
