#!/usr/bin/env python3
"""A state folder on a disk that is full (case 071): nothing is made, and all is well again when there is room."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

from harness import alive, contains, equal, run_cases, wait_until

PRIVATE = "CAPSTAN_E2E_PRIVATE_MOUNTS"


class SmallDisk:
    """A file system of 1 MiB where the world's state is; gone with this process's namespace."""

    def __init__(self, world):
        self.filler = world.state / "fill"
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", world.state],
                       check=True)
        end = world.end

        def unmount_too():
            try:
                self.clear()
                end_daemon(world)
            finally:
                subprocess.run(["umount", "-l", world.state], check=True)
                end()

        world.end = unmount_too

    def fill(self):
        with open(self.filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 1024)
            except OSError:
                pass

    def clear(self):
        self.filler.unlink(missing_ok=True)


def end_daemon(world):
    pid = world.daemon_pid()
    if pid:
        os.kill(pid, 15)
        wait_until(lambda: not alive(pid), 30)


def processes(world):
    """Whatever has the world's runtime folder in its command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if str(world.run_dir).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return sorted(pid for pid in found if alive(pid))


def environments(world):
    folder = world.state_dir / "environments"
    return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []


def cannot_begin(world):
    """case 071: no daemon begins on a full disk; the error names the folder and the cure."""
    disk = SmallDisk(world)
    disk.fill()
    for _ in range(2):
        world.capstan("run", "--", "echo", "never", code=125)
        contains(world.stderr, f"state store full: {world.state_dir}/")
        contains(world.stderr, "free space on that file system")
        equal((processes(world), environments(world), [*world.run_dir.glob("*/*")]), ([], [], []))
    disk.clear()
    equal(world.capstan("run", "--", "echo", "again"), "again\n")


def fills_up(world):
    """case 071: on a disk that fills up what runs goes on, and nothing new is made."""
    disk = SmallDisk(world)
    agent = world.json("run", "--detach", "--task", "a", "--", "sleep", "1000")["sessionId"]
    pid = world.json("session", "show", agent)["pid"]
    before = processes(world), environments(world)
    disk.fill()
    for task in "b", "c":
        world.capstan("run", "--task", task, "--", "echo", "never", code=125)
        contains(world.stderr, f"state store full: {world.state_dir}/")
        contains(world.stderr, "free space on that file system")
        contains(world.stderr, "[resourceExhausted]")
    equal((processes(world), environments(world)), before)
    equal([each["taskId"] for each in world.json("env", "list")["environments"]], ["a"])
    equal(alive(pid), True)
    equal(world.capstan("exec", "a", "--", "echo", "alive"), "alive\n")
    disk.clear()
    equal(world.capstan("run", "--task", "b", "--", "echo", "again"), "again\n")
    equal(alive(pid), True)


def why_not():
    if os.geteuid() != 0:
        return "only root can mount a small disk"
    if shutil.which("unshare") is None:
        return "the program unshare is not installed"
    tried = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False,
                           stderr=subprocess.PIPE, text=True)
    return tried.stderr.strip().replace("\n", " ") if tried.returncode != 0 else None


if __name__ == "__main__":
    CASES = [cannot_begin, fills_up]
    if PRIVATE in os.environ:
        run_cases(CASES)
    reason = why_not()
    if reason is None:
        sys.exit(subprocess.run(["unshare", "-m", sys.executable, *sys.argv], check=False,
                                env=dict(os.environ, **{PRIVATE: "1"})).returncode)
    for number, case in enumerate(CASES, 1):
        print(f"ok {number} - {case.__doc__.split('.')[0]} # SKIP {reason}")
    print(f"1..{len(CASES)}")
