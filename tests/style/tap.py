"""What the style checks share: the tracked files, and cases printed as TAP for tap-case."""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def tracked_files(*patterns):
    """The files that git knows, as relative paths. Outside a checkout the checks are skipped: they
    are about the repository."""
    out = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z", "--", *patterns],
                         cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if out.returncode != 0:
        print("ok 1 - the tracked files # SKIP not a git checkout\n1..1")
        sys.exit(0)
    names = [Path(name) for name in out.stdout.decode().split("\0") if name]
    return [name for name in names if (ROOT / name).is_file()]


def read(name):
    """The text of a tracked file; None when it is no text."""
    data = (ROOT / name).read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


class Cases:
    """Collects cases; each is a name and the list of what breaks the rule."""

    def __init__(self):
        self.number, self.failed = 0, False

    def check(self, name, problems):
        self.number += 1
        self.failed |= bool(problems)
        print(f"{'not ' if problems else ''}ok {self.number} - {name}")
        for problem in problems:
            print(f"#   {problem}")

    def skip(self, name, reason):
        self.number += 1
        print(f"ok {self.number} - {name} # SKIP {reason}")

    def end(self):
        print(f"1..{self.number}")
        sys.exit(1 if self.failed else 0)
