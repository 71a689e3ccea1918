#!/usr/bin/env python3
"""What clumsy and hostile users do: odd descriptors, odd words, killed parts, raw octets."""
import os
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

from harness import TOOLS, alive, contains, equal, resident_kib, run_cases, wait_until


def closed_streams(world):
    """closed standard streams are as /dev/null, also when the daemon starts."""
    def run(redirections, *words):
        line = f'exec "$0" "$@" {redirections}'
        done = subprocess.run(["sh", "-c", line, TOOLS / "capstan", *words], env=world.env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=30, check=False)
        return done.returncode, done.stdout, done.stderr
    script = "cat; echo out; echo err >&2; exit 3"
    equal(run("<&- >&- 2>&-", "run", "--", "sh", "-c", script), (3, b"", b""))
    equal(run("<&-", "run", "--", "sh", "-c", script), (3, b"out\n", b"err\n"))
    equal(run(">&-", "run", "--", "sh", "-c", script), (3, b"", b"err\n"))
    equal(run("2>&-", "run", "--", "sh", "-c", script), (3, b"out\n", b""))
    equal(run("</", "run", "--", "cat")[0], 125)


def full_output(world):
    """output that cannot be written is a failure, never silence."""
    with open("/dev/full", "wb") as full:
        for words in (["env", "list"], ["--json", "env", "list"], ["--help"], ["run", "--help"],
                      ["--version"], ["run", "--", "echo", "x"]):
            client = world.popen(*words, stdout=full, stderr=subprocess.PIPE)
            _, err = client.communicate(timeout=30)
            equal(client.returncode, 125)
            contains(err.decode(), "No space left on device")


def nothing_inherited(world):
    """an auto-started daemon keeps no descriptor of its client's caller."""
    reading, writing = os.pipe()
    world.capstan("run", "--", "true", pass_fds=[writing])
    os.close(writing)
    os.set_blocking(reading, False)
    equal(os.read(reading, 1), b"")  # End of file: nobody else holds the other end.
    os.close(reading)


def helper_pid(world):
    """The helper that is not a fork of another one."""
    pids = {}
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if b"serve" in words and any(str(world.run_dir).encode() in word for word in words):
            pids[int(entry.name)] = int(parent)
    return next(pid for pid, parent in pids.items() if parent not in pids)


def helper_killed(world):
    """whoever follows output learns that the helper was killed."""
    run = world.popen("run", "--task", "t", "--", "sh", "-c", "echo up; exec sleep 1000",
                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    equal(run.stdout.readline(), b"up\n")
    session = world.json("session", "list")["sessions"][0]["id"]
    clients = [run] + [world.popen(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                       for words in (["session", "logs", "-f", session],
                                     ["exec", "t", "--", "sh", "-c", "echo up; sleep 1000"])]
    for client in clients[1:]:
        equal(client.stdout.readline(), b"up\n")
    os.kill(helper_pid(world), signal.SIGKILL)
    for client in clients:
        _, err = client.communicate(timeout=15)
        equal(client.returncode, 125)
        contains(err.decode(), "instanceLost")
    equal(world.json("session", "show", session)["state"], "lost")
    equal(world.capstan("run", "--task", "t", "--", "echo", "again"), "again\n")


if __name__ == "__main__":
    run_cases([closed_streams, full_output, nothing_inherited, helper_killed])
