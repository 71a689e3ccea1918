#!/usr/bin/env python3
"""The command line, end to end: capstan, capstand and agentctl as a person uses them."""
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import (TOOLS, alive, contains, equal, resident_kib, run_cases, wait_until)


def streams_and_code(world):
    """run streams stdout, stderr and stdin and returns the exit code."""
    out = world.capstan("run", "--", "sh", "-c", "cat; echo err >&2; exit 3", code=3,
                        stdin=open("/etc/hostname", "rb"))
    equal(out, Path("/etc/hostname").read_text())
    equal(world.stderr, "err\n")


def codes_of_a_shell(world):
    """exit codes follow a shell: 127, 126, 128+n, and 125 when Capstan failed."""
    world.capstan("run", "--", "no-such-program", code=127)
    contains(world.stderr, "[notFound]")
    world.capstan("run", "--", "/etc/hostname", code=126)
    world.capstan("run", "--", "sh", "-c", "kill -TERM $$", code=143)
    world.capstan("run", "--executor", "nowhere", "--", "true", code=125)
    contains(world.stderr, "exec-local-pc")


def usage(world):
    """wrong usage exits with 2, names the cure and starts no daemon."""
    world.capstan("run", "--jsno", "--", "true", code=2)
    contains(world.stderr, "did you mean --json?")
    world.capstan("run", code=2)
    contains(world.stderr, "put it after --")
    world.capstan("frobnicate", code=2)
    world.capstan("env", "stop", "x", "--grace", "soon", code=125)
    world.capstan("env", "show", code=2)
    for words in (["run"], ["exec"], ["env", "list"], ["session", "logs"], ["runtimes"]):
        contains(world.capstan(*words, "--help"), "example: capstan")
    contains(world.capstan("--help"), "session stop")
    contains(world.capstan("--version"), "capstan ")


def racing_clients(world):
    """six clients that start a daemon at once all reach the same one."""
    clients = [world.popen("run", "--task", f"t{i}", "--", "echo", str(i), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE) for i in range(6)]
    for i, client in enumerate(clients):
        out, err = client.communicate(timeout=60)
        equal((client.returncode, out), (0, f"{i}\n".encode()))
        equal(err, b"")
    equal(len(world.json("env", "list")["environments"]), 6)


def second_daemon(world):
    """a second daemon on the same state is refused with the owner's pid."""
    world.capstan("run", "--", "true")
    second = subprocess.run([TOOLS / "capstand", "--socket", world.run_dir / "other.sock"],
                            env=world.env, stderr=subprocess.PIPE, timeout=30, check=False)
    equal(second.returncode, 1)
    contains(second.stderr.decode(), f"pid {world.daemon_pid()}")
    contains(second.stderr.decode(), "stateLocked")


def large_both_ways(world):
    """64 MiB of random octets come back with the same SHA-256."""
    data = os.urandom(1 << 20) * 64
    client = world.popen("run", "--", "cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, _ = client.communicate(data, timeout=120)
    equal(client.returncode, 0)
    equal(hashlib.sha256(out).hexdigest(), hashlib.sha256(data).hexdigest())


def stopped_reader(world):
    """a reader that stops reading grows neither client, daemon nor helper, and loses nothing."""
    world.capstan("run", "--task", "t", "--", "true")
    helper = world.helper_pid()
    before = resident_kib(world.daemon_pid()), resident_kib(helper)
    client = world.popen("run", "--task", "t", "--", "sh", "-c",
                         "head -c 150000000 /dev/zero", stdout=subprocess.PIPE)
    ends = [0]

    def stalled():
        ends.append(sum(s["outputEnd"] for s in sessions(world, "head -c")))
        return ends[-1] > 60 << 20 and ends[-1] == ends[-2]

    wait_until(stalled, 30)
    after = resident_kib(world.daemon_pid()), resident_kib(helper)
    if after[0] > before[0] + 16384 or after[1] > before[1] + 16384:
        raise AssertionError(f"resident KiB of daemon and helper: {before} -> {after}")
    if resident_kib(client.pid) > 65536:
        raise AssertionError(f"resident KiB of the client: {resident_kib(client.pid)}")
    got = 0
    while piece := client.stdout.read(1 << 20):
        got += len(piece)
    equal((got, client.wait(30)), (150000000, 0))


def sessions(world, command):
    found = []
    for session in world.json("session", "list")["sessions"]:
        if command in " ".join(session["command"]):
            found.append(world.json("session", "show", session["id"]))
    return found


def descriptors(world):
    """daemon and helper may open many files, an agent as many as the client could."""
    few = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (700, few[1]))
    try:
        out = world.capstan("run", "--", "sh", "-c", "ulimit -Sn; ulimit -Hn")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, few)
    equal(out.split(), ["700", "unlimited" if few[1] == resource.RLIM_INFINITY else str(few[1])])
    most = few[1] if few[1] != resource.RLIM_INFINITY else 1 << 20
    for pid in world.daemon_pid(), world.helper_pid():
        equal(resource.prlimit(pid, resource.RLIMIT_NOFILE)[0], max(700, min(most, 1 << 20)))


def never_reads(world):
    """a process that does not read its stdin is stopped while a client still writes to it."""
    client = world.popen("run", "--task", "t", "--", "sleep", "1000", stdin=subprocess.PIPE,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.set_blocking(client.stdin.fileno(), False)
    written, quiet = 0, time.monotonic()
    while time.monotonic() - quiet < 1.0:  # until every buffer on the way is full
        try:
            written += os.write(client.stdin.fileno(), b"x" * 65536)
            quiet = time.monotonic()
        except BlockingIOError:
            time.sleep(0.05)
    if not 256 * 1024 <= written < 16 << 20:
        raise AssertionError(f"{written} octets were taken")
    world.capstan("session", "stop", sessions(world, "sleep 1000")[0]["id"], "--force")
    equal(client.wait(30), 137)


def interrupts(world):
    """Ctrl-C interrupts the command, a second one within two seconds stops it."""
    script = "trap 'echo got-int' INT; echo ready; while :; do sleep 0.1; done"
    client = world.popen("run", "--", "sh", "-c", script, stdout=subprocess.PIPE)
    equal(client.stdout.readline(), b"ready\n")
    client.send_signal(signal.SIGINT)
    equal(client.stdout.readline(), b"got-int\n")
    client.send_signal(signal.SIGINT)
    equal(client.wait(30), 143)


def client_dies(world):
    """the command goes on when its client is killed, and its output is kept."""
    client = world.popen("run", "--task", "t", "--", "sh", "-c",
                         "echo one; read x; sleep 1; echo two", stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE)
    equal(client.stdout.readline(), b"one\n")
    client.stdin.write(b"go\n")
    client.stdin.flush()
    time.sleep(0.3)
    client.kill()
    client.wait()
    session = sessions(world, "echo one")[0]
    equal(session["state"], "running")
    equal(world.capstan("session", "logs", "-f", session["id"]), "one\ntwo\n")
    equal(world.capstan("session", "logs", session["id"], "--from", session["runId"] + ":4"),
          "two\n")
    world.capstan("session", "logs", session["id"], "--from", "9999", code=125)
    contains(world.stderr, "[invalidArgument]")


def exec_ends_with_client(world):
    """exec runs beside the sessions and ends with its client."""
    world.capstan("run", "--task", "t", "--", "sh", "-c", "echo data > file")
    equal(world.capstan("exec", "t", "--", "cat", "file"), "data\n")
    world.capstan("exec", "t", "--", "sh", "-c", "exit 7", code=7)
    world.capstan("exec", "t", "--", "no-such-program", code=127)
    world.capstan("exec", "nowhere", "--", "true", code=125)
    client = world.popen("exec", "t", "--", "sh", "-c", "echo $$; exec sleep 1000",
                         stdout=subprocess.PIPE)
    pid = int(client.stdout.readline())
    client.kill()
    client.wait()
    wait_until(lambda: not alive(pid))


def detached(world):
    """run --detach prints the ids and leaves the command running."""
    ids = world.json("run", "--task", "t", "--detach", "--", "sleep", "1000")
    equal(sorted(ids), ["environmentId", "executorId", "runId", "sessionId", "state", "taskId"])
    equal((ids["taskId"], ids["executorId"], ids["state"]), ("t", "exec-local-pc", "running"))
    shown = world.json("session", "show", ids["sessionId"][:8])
    equal((shown["id"], shown["runId"]), (ids["sessionId"], ids["runId"]))
    pid = shown["pid"]
    world.capstan("session", "stop", ids["sessionId"])
    wait_until(lambda: not alive(pid))
    equal(world.json("session", "show", ids["sessionId"])["state"], "stopped")
    equal(world.json("session", "show", ids["sessionId"])["exit"]["signal"], "TERM")


def workspace_of_the_user(world):
    """a folder of the user's is worked in and left in place, ours is removed."""
    with tempfile.TemporaryDirectory() as mine:
        equal(world.capstan("run", "--task", "t", "--workspace", mine, "--", "pwd").strip(),
              os.path.realpath(mine))
        world.capstan("run", "--task", "t", "--", "touch", "made")
        world.capstan("run", "--task", "t", "--workspace", "/", "--", "true", code=125)
        contains(world.stderr, "capstan env destroy")
        equal(world.capstan("env", "destroy", "t"), f"left in place: {os.path.realpath(mine)}\n")
        equal(os.listdir(mine), ["made"])
    world.capstan("run", "--task", "own", "--", "touch", "made")
    world.capstan("env", "stop", "own")
    place = Path(world.json("env", "show", "own")["workspace"])
    equal(os.listdir(place), ["made"])
    kept = world.json("env", "destroy", "own", "--keep-workspace")
    equal(kept["leftovers"], [f"left in place: {place}"])
    equal(os.listdir(place), ["made"])
    world.capstan("run", "--task", "gone", "--rm", "--", "touch", "made")
    equal(world.json("env", "list")["environments"], [])


def variables(world):
    """a command starts with the agreed variables and no others of ours."""
    env = dict(world.env, CAPSTAN_TOKEN="planted-token", SECRET_OF_MINE="planted-secret")
    out = world.capstan("run", "--task", "t", "--env", "A=1=2", "--env", "B=", "--", "env", env=env)
    seen = dict(line.split("=", 1) for line in out.splitlines())
    equal((seen["A"], seen["B"], seen["CAPSTAN_TASK_ID"]), ("1=2", "", "t"))
    equal(seen["HOME"], world.env["HOME"])
    allowed = {"A", "B", "PATH", "HOME", "LANG", "CAPSTAN_TASK_ID", "CAPSTAN_ENVIRONMENT_ID",
               "CAPSTAN_SESSION_ID", "CAPSTAN_RUN_ID"}
    equal(set(seen) - allowed, set())
    daemon = Path(f"/proc/{world.daemon_pid()}/environ").read_bytes()
    if b"planted-token" in daemon:
        raise AssertionError("the daemon inherited the client's token")
    world.capstan("run", "--task", "t", "--env", "K=secret:none", "--", "true", code=125)
    contains(world.stderr, "[notFound]")
    world.capstan("run", "--task", "t", "--env", "A=1", "--env", "A=2", "--", "true", code=125)
    contains(world.stderr, "[variableConflict]")


def json_errors(world):
    """with --json a failure is one JSON object on stderr."""
    world.capstan("env", "show", "nowhere", "--json", code=125)
    error = json.loads(world.stderr)["error"]
    equal((error["code"], error["retryable"]), ("notFound", False))
    rows = {row["runtime"]: row for row in world.json("runtimes")["runtimes"]}
    equal(rows["standalone"]["healthy"], True)
    equal(rows["docker"]["reason"]["code"], "runtimeUnavailable")
    contains(world.capstan("runtimes"), "standalone")


def reader_goes_away(world):
    """a command whose reader has gone away ends as a local one would."""
    client = world.popen("run", "--task", "t", "--", "yes", stdout=subprocess.PIPE)
    client.stdout.read(4096)
    client.stdout.close()
    equal(client.wait(30), 128 + signal.SIGPIPE)
    wait_until(lambda: sessions(world, "yes")[0]["state"] == "exited")


def watching(world):
    """env watch tells what happens, as JSON and in words, and ends with the environment."""
    world.capstan("run", "--task", "w", "--", "true")
    plain = world.popen("env", "watch", "w", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    every = world.popen("env", "watch", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first = [json.loads(every.stdout.readline()) for _ in range(3)]
    equal([each["event"] for each in first], ["reset", "upsert", "synced"])
    equal(first[1]["environment"]["taskId"], "w")
    contains(plain.stdout.readline().decode(), "w                 ready")
    world.capstan("run", "--task", "w", "--", "sh", "-c", "exit 3", code=3)
    world.capstan("env", "destroy", "w")
    out, err = plain.communicate(timeout=30)
    equal((plain.returncode, err), (0, b""))
    for part in ("running: sh -c exit 3", "exited 3", "cleaning", "removed"):
        contains(out.decode(), part)
    events = []
    while not events or events[-1]["event"] != "remove":
        events.append(json.loads(every.stdout.readline()))
    equal(events[-1]["environmentId"], first[1]["environment"]["id"])
    equal(sorted(events, key=lambda each: each["seq"]), events)
    every.send_signal(signal.SIGINT)
    equal(every.communicate(timeout=30), (b"", b""))
    equal(every.returncode, -signal.SIGINT)
    # The end of the daemon is told, and starts no other one.
    last = world.popen("env", "watch", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    equal([json.loads(last.stdout.readline())["event"] for _ in range(2)], ["reset", "synced"])
    pid = world.daemon_pid()
    os.kill(pid, signal.SIGTERM)
    _, err = last.communicate(timeout=30)
    equal(last.returncode, 125)
    contains(err.decode(), "the daemon")
    wait_until(lambda: not alive(pid), 30)
    equal(alive(world.daemon_pid() or pid), False)


def orderly_end(world):
    """a daemon that is asked to end leaves what runs; one that has nothing leaves nothing."""
    session = world.json("run", "--detach", "--task", "t", "--", "sh", "-c",
                         "(setsid sleep 1000 &) ; exec sleep 1000")["sessionId"]
    agent = world.json("session", "show", session)["pid"]
    daemon, helper = world.daemon_pid(), world.helper_pid()
    os.kill(daemon, signal.SIGTERM)
    wait_until(lambda: not alive(daemon), 30)
    assert alive(agent) and alive(helper)
    # The next client starts another daemon, which takes it back.
    wait_until(lambda: world.json("session", "show", session)["state"] == "running")
    equal(world.json("session", "show", session)["pid"], agent)
    equal(world.helper_pid(), helper)
    world.capstan("env", "destroy", "t")
    assert not alive(agent)
    daemon = world.daemon_pid()
    os.kill(daemon, signal.SIGTERM)
    wait_until(lambda: not alive(daemon) and not alive(helper), 30)
    equal([entry.name for entry in (world.run_dir / "capstan").iterdir()], [])
    equal(world.capstan("run", "--", "echo", "again"), "again\n")


NUMBERS = """
i=0
while [ ! -e go ]; do i=$((i + 1)); echo "out $i"; echo "err $i" >&2; sleep 0.01; done
echo bye; exit 7
"""


def daemon_killed(world):
    """a session goes on over a daemon that is killed: no line lost, doubled or out of order."""
    client = world.popen("run", "--task", "t", "--", "sh", "-c", NUMBERS, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
    equal(client.stdout.readline(), b"out 1\n")
    session = sessions(world, "")[0]
    agent = world.json("session", "show", session["id"])["pid"]
    os.kill(world.daemon_pid(), signal.SIGKILL)
    _, err = client.communicate(timeout=30)
    equal(client.returncode, 125)
    contains(err.decode(), "connection to the daemon is lost")

    wait_until(lambda: world.json("session", "show", session["id"])["state"] == "running")
    equal(world.json("session", "show", session["id"])["pid"], agent)
    follower = world.popen("session", "logs", "-f", session["id"], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT)
    time.sleep(0.3)
    (Path(world.json("env", "show", "t")["workspace"]) / "go").touch()
    seen, _ = follower.communicate(timeout=30)
    equal(follower.returncode, 0)
    lines = seen.decode().splitlines()
    turns = len(lines) // 2
    assert turns > 10, lines
    # Both streams go to one pipe, in the order in which they were written.
    equal(lines, [word for i in range(1, turns + 1) for word in (f"out {i}", f"err {i}")] + ["bye"])
    wait_until(lambda: world.json("session", "show", session["id"])["state"] == "exited")
    equal(world.json("session", "show", session["id"])["exit"]["code"], 7)


def exit_unseen(world):
    """an exit that no daemon saw is told by the next one."""
    session = world.json("run", "--detach", "--task", "t", "--", "sh", "-c",
                         "while [ ! -e go ]; do sleep 0.05; done; echo done; exit 3")["sessionId"]
    agent = world.json("session", "show", session)["pid"]
    workspace = Path(world.json("env", "show", "t")["workspace"])
    os.kill(world.daemon_pid(), signal.SIGKILL)
    (workspace / "go").touch()
    wait_until(lambda: not alive(agent))
    wait_until(lambda: world.json("session", "show", session)["state"] == "exited")
    equal(world.json("session", "show", session)["exit"]["code"], 3)
    equal(world.capstan("session", "logs", session), "done\n")


def resumed(world):
    """a session that ended, or whose helper was killed, is resumed where it was; a live one joined."""
    script = "echo x >> log; wc -l < log; exit 3"
    session = world.json("run", "--detach", "--task", "t", "--", "sh", "-c", script)["sessionId"]
    wait_until(lambda: world.json("session", "show", session)["state"] == "exited")
    equal(world.capstan("session", "resume", session, code=3), "2\n")
    equal(world.capstan("session", "resume", session, "--", "sh", "-c", "cat log; sleep 0"),
          "x\nx\n")
    world.capstan("session", "resume", session, "--", "no-such-program", code=127)
    os.kill(world.helper_pid(), signal.SIGKILL)
    wait_until(lambda: world.json("env", "show", "t")["state"] == "lost")
    # Without words the latest command counts.
    equal(world.capstan("session", "resume", session, "--", "sh", "-c", script, code=3), "3\n")
    equal(world.capstan("session", "resume", session, code=3), "4\n")
    shown = world.json("session", "resume", "--detach", session, "--", "sleep", "1000")
    equal(shown["state"], "running")
    world.capstan("session", "resume", "--detach", session)
    contains(world.stderr, "its run goes on")
    world.capstan("session", "resume", "--detach", session, "--", "true")
    contains(world.stderr, "the command after -- was not used")
    equal(world.json("session", "show", session)["pid"], shown["pid"])
    world.capstan("session", "stop", session, "--force")
    workspace = Path(world.json("env", "show", "t")["workspace"])
    shutil.rmtree(workspace)
    world.capstan("session", "resume", session, code=125)
    contains(world.stderr, "[workspaceLost]")
    equal(workspace.exists(), False)
    equal([step["status"] for step in world.json("env", "show", "t")["lastSteps"]],
          ["completed", "completed"])
    workspace.mkdir()
    equal(world.capstan("session", "resume", session, "--", "pwd"), f"{workspace}\n")
    workspace.parent.rename(workspace.parent.with_name("moved"))
    world.capstan("session", "resume", session, code=125)
    contains(world.stderr, "[workspaceLost]")


if __name__ == "__main__":
    run_cases([streams_and_code, codes_of_a_shell, usage, racing_clients, second_daemon,
               large_both_ways, stopped_reader, descriptors, never_reads, interrupts, client_dies,
               exec_ends_with_client, detached, workspace_of_the_user, variables, json_errors,
               reader_goes_away, watching, orderly_end, daemon_killed, exit_unseen,
               resumed])
