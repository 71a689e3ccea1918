#!/usr/bin/env python3
"""capstand's configuration file, end to end."""
import json
import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

from harness import TOOLS, contains, equal, run_cases, wait_until


def capstand(world, *words, code):
    """Runs the daemon's program to its end; returns its stdout and stderr."""
    result = subprocess.run([TOOLS / "capstand", *map(str, words)], env=world.env, timeout=30,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True)
    equal((result.returncode, result.stderr if result.returncode != code else ""), (code, ""))
    return result.stdout, result.stderr


def config(world, text):
    path = world.run_dir.parent / "capstan.yaml"
    path.write_text(text)
    return path


def made_nothing(world):
    equal([*world.state.iterdir()] + [*world.run_dir.iterdir()], [])


@contextmanager
def daemon(world, *words, socket):
    """A daemon that an administrator started; yields it with its log's path as `log`."""
    log = world.run_dir.parent / "log"
    with open(log, "wb") as out:
        process = subprocess.Popen([TOOLS / "capstand", *map(str, words)], env=world.env,
                                   stdin=subprocess.DEVNULL, stderr=out)
    process.log = log
    try:
        wait_until(lambda: socket.exists() or process.poll() is not None)
        equal(process.poll(), None)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def refused_before_anything(world):
    """a file with a fault ends the program with place and cure, and nothing was made."""
    for text, place, cure in (
            ("agent:\n  dockr: {}\n", ":2:3: unknown key 'agent.dockr'",
             "did you mean 'agent.docker'?"),
            ("limits: {labels: 1}\nlimits: {}\n", ":2:1: the key 'limits' is repeated", "line 1"),
            ("deadlines:\n  connect: 30m\n", ":2:12: deadlines.connect: 'm' is no unit", "min"),
            ("agent: {runtime: docker}\n", ":1:9: agent.runtime is gone", "--executor"),
            ("agent: {standalone: {port: 9999}}\n", ":1:28: agent.standalone.port: '9999'",
             "it takes 0"),
            ("a: [\n", ":2:1: not valid YAML", "indent"),
            ("#" * (1 << 20) + "\n", ": has more than 1048576 octets", "shorter")):
        path = config(world, text)
        for more in ([], ["--print-config"], ["--auto-started"]):
            out, err = capstand(world, "--config", path, *more, code=2)
            equal(out, "")
            contains(err, f"capstand: {path}{place}")
            contains(err, cure)
        made_nothing(world)


def unreadable(world):
    """a file that is not there, no file or not for this user is told as such."""
    missing = world.run_dir.parent / "missing"
    _, err = capstand(world, "--config", missing, code=2)
    contains(err, f"capstand: the configuration file {missing} cannot be read: No such file")
    _, err = capstand(world, "--config", world.run_dir, code=2)
    contains(err, "it is no file")
    fifo = world.run_dir.parent / "fifo"
    os.mkfifo(fifo)
    _, err = capstand(world, "--config", fifo, code=2)
    contains(err, "it is no file")
    if os.geteuid() != 0:
        path = config(world, "")
        path.chmod(0)
        _, err = capstand(world, "--config", path, code=2)
        contains(err, "Permission denied")
    made_nothing(world)


def printed(world):
    """what is printed reads back the same, and options win over the file."""
    path = config(world, "log_format: json\nlocal_admin: false\nsocket: /nowhere/s\n"
                         "deadlines: {stop_grace: 1500ms}\n")
    out, _ = capstand(world, "--config", path, "--print-config", code=0)
    for line in (f'state_dir: "{world.state_dir}"', "log_format: json", "local_admin: false",
                 'socket: "/nowhere/s"', "  stop_grace: 1500ms", "  connect: 30s"):
        contains(out, line + "\n")
    equal(capstand(world, "--config", config(world, out), "--print-config", code=0)[0], out)
    out, _ = capstand(world, "--print-config", "--log-format", "text", "--config", path,
                      "--socket=/other/s", "--state-dir", "here", code=0)
    for line in ("log_format: text", 'socket: "/other/s"', f'state_dir: "{os.getcwd()}/here"',
                 "  stop_grace: 1500ms"):
        contains(out, line + "\n")
    made_nothing(world)


def in_force(world):
    """a file's folders, limits and switches hold in the daemon."""
    root = world.run_dir.parent
    socket, helpers, state = root / "own" / "d.sock", root / "helpers", root / "elsewhere"
    socket.parent.mkdir(mode=0o700)
    path = config(world, f"""
state_dir: {state}
socket: {socket}
log_format: json
agent:
  docker: {{enabled: true}}
  standalone: {{socket: {helpers}}}
limits:
  command_words: 3
  variables: 2
""")
    with daemon(world, "--config", path, socket=socket) as process:
        at = ("--socket", socket)
        equal(world.capstan(*at, "run", "--", "echo", "two", "words"), "two words\n")
        equal(sorted(file.suffix for file in helpers.iterdir()), [".lock", ".sock"])
        world.capstan(*at, "run", "--", "echo", "three", "more", "words", code=125)
        contains(world.stderr, "[invalidArgument]")
        contains(world.stderr, "3 are taken")
        rows = {row["runtime"]: row for row in world.json(*at, "runtimes")["runtimes"]}
        docker = rows["docker"]
        equal((docker["configured"], docker["builtIn"], docker["available"]), (True, False, False))
        equal(rows["ssh"]["configured"], False)
        lines = [json.loads(line) for line in process.log.read_text().splitlines()]
        equal([line["severity"] for line in lines if "agent.docker.enabled" in line["text"]],
              ["warning"])
        equal(Path(state / "lock").exists(), True)
        for row in world.json(*at, "env", "list")["environments"]:
            world.capstan(*at, "env", "destroy", row["id"])
    # It outlives the daemon while it holds anything.
    wait_until(lambda: not [*helpers.iterdir()])
    equal(world.state_dir.exists(), False)


if __name__ == "__main__":
    run_cases([refused_before_anything, unreadable, printed, in_force])
