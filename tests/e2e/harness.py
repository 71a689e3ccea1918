"""What the end-to-end cases share: the built programs, a daemon of their own, cases as TAP."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

TOOLS = Path(sys.argv[1] if len(sys.argv) > 1 else "build/tools").resolve()
LIMIT = 60  # Seconds for any one command.


class World:
    """A state folder of 90 octets' path, a runtime folder, and what was started in them."""

    def __init__(self):
        self.temp = tempfile.TemporaryDirectory(prefix="capstan-e2e-")
        root = Path(self.temp.name)
        pad = 90 - len(str(root)) - len("//capstan")
        self.state = root / ("s" * max(pad, 1))
        self.run_dir = root / "run"
        self.run_dir.mkdir()
        self.state.mkdir()
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(root), "LANG": "C.UTF-8",
            "XDG_STATE_HOME": str(self.state), "XDG_RUNTIME_DIR": str(self.run_dir),
        }
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "CAPSTAN_AGENTCTL_DIR"):
            if name in os.environ:
                self.env[name] = os.environ[name]

    @property
    def state_dir(self):
        return self.state / "capstan"

    def popen(self, *words, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("env", self.env)
        return subprocess.Popen([str(TOOLS / "capstan"), *map(str, words)], **options)

    def capstan(self, *words, code=0, **options):
        """Runs one command to its end; checks its exit code; returns stdout as text."""
        result = subprocess.run([str(TOOLS / "capstan"), *map(str, words)],
                                stdin=options.pop("stdin", subprocess.DEVNULL),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT,
                                env=options.pop("env", self.env), **options)
        self.stderr = result.stderr.decode(errors="replace")
        if result.returncode != code:
            raise AssertionError(f"capstan {' '.join(map(str, words))}: exit {result.returncode}, "
                                 f"not {code}; stderr: {self.stderr}")
        return result.stdout.decode(errors="replace")

    def json(self, *words, **options):
        return json.loads(self.capstan("--json", *words, **options))

    def daemon_pid(self):
        """From the lock, 0 when no daemon has it."""
        try:
            words = (self.state_dir / "lock").read_text().split()
            pid = int(words[1].rstrip(","))
            os.kill(pid, 0)
            return pid
        except (OSError, IndexError, ValueError):
            return 0

    def helper_pid(self):
        """The helper that is not a fork of another one; 0 when none runs."""
        pids = {}
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if b"serve" in words and any(str(self.temp.name).encode() in word for word in words):
                pids[int(entry.name)] = int(parent)
        return next((pid for pid, parent in pids.items() if parent not in pids), 0)

    def end_helper(self):
        """It outlives the daemon while it holds anything: ends it with what runs under it."""
        pid = self.helper_pid()
        if pid:
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: not alive(pid), 30)

    def end(self):
        """Ends the daemon as an operator would, then its helper, and waits for both."""
        pid = self.daemon_pid()
        if pid:
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: not alive(pid), 30)
        self.end_helper()
        self.temp.cleanup()


def alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def resident_kib(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError(f"no VmRSS of {pid}")


def wait_until(question, seconds=15):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if question():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come true in time")


def equal(got, want):
    if got != want:
        raise AssertionError(f"got {got!r}, wanted {want!r}")


def contains(text, part):
    if part not in text:
        raise AssertionError(f"{part!r} is not in {text!r}")


def run_cases(cases):
    """Runs each case in a world of its own; prints TAP; never returns."""
    failed = False
    for number, case in enumerate(cases, 1):
        world = World()
        problem = None
        try:
            case(world)
        except Exception:  # pylint: disable=broad-except
            problem = traceback.format_exc()
            log = world.state_dir / "capstand.log"
            if log.exists():
                problem += log.read_text()[-3000:]
        finally:
            try:
                world.end()
            except Exception:  # pylint: disable=broad-except
                problem = (problem or "") + traceback.format_exc()
        name = case.__doc__.split(".")[0]
        print(f"{'not ' if problem else ''}ok {number} - {name}")
        for line in (problem or "").splitlines():
            print(f"#   {line}")
        sys.stdout.flush()
        failed |= problem is not None
    print(f"1..{len(cases)}")
    sys.exit(1 if failed else 0)
