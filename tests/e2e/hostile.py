#!/usr/bin/env python3
"""What clumsy and hostile users do: odd descriptors, odd words, killed parts, raw octets."""
import os
import resource
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

from harness import TOOLS, contains, equal, run_cases, wait_until


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
    os.kill(world.helper_pid(), signal.SIGKILL)
    for client in clients:
        _, err = client.communicate(timeout=15)
        equal(client.returncode, 125)
        contains(err.decode(), "instanceLost")
    equal(world.json("session", "show", session)["state"], "lost")
    equal(world.capstan("run", "--task", "t", "--", "echo", "again"), "again\n")


def odd_words(world):
    """what cannot be started or defined says so with its own code."""
    with open(world.run_dir / "broken", "w", encoding="ascii") as script:
        script.write("#!/nowhere/shell\n")
    os.chmod(script.name, 0o755)
    for code, words in ((127, ["--", "no-such"]), (127, ["--", script.name]),
                        (126, ["--", "/tmp"]), (126, ["--", "x" * 300]),
                        (125, ["--cwd", "nowhere", "--", "true"]),
                        (125, ["--cwd", "/etc/hostname", "--", "true"]),
                        (125, ["--env", "A=secret:", "--", "true"]),
                        (2, ["--env", "=x", "--", "true"])):
        world.capstan("run", "--task", "t", *words, code=code)
    world.capstan("run", "--task", "d", "--workspace", "/dev/null", "--", "true", code=125)
    contains(world.stderr, "Not a directory")
    world.capstan("run", "--task", "e", "--title", "\x1b[31mred\nline", "--", "true")
    if "\x1b" in world.capstan("env", "show", "e"):
        raise AssertionError("a title's escape sequence reaches the terminal")


def long_commands(world):
    """a long command runs or is refused with its size; nothing costs the connection."""
    def run(count, *more, code=0):
        words = ["sh", "-c", "echo $#", "sh"] + ["w" * 1000] * count
        return world.capstan("run", "--task", "t", *more, "--", *words, code=code)
    equal(run(800), "800\n")
    run(1500, code=2)
    contains(world.stderr, "KiB")
    for more in (5000, 20000):
        world.capstan("run", "--task", "t", "--", "true", *["a"] * more, code=125)
        contains(world.stderr, "at most 4096")
    many = [part for i in range(700) for part in ("--env", f"A{i}=" + "v" * 1000)]
    equal(run(1, *many), "1\n")


def daemon_replaced(world):
    """a client that comes while the daemon ends waits and starts the next one."""
    hold = "trap 'sleep 1.5; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    holder = world.popen("run", "--", "sh", "-c", hold, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL)
    equal(holder.stdout.readline(), b"up\n")
    daemon = world.daemon_pid()
    os.kill(daemon, signal.SIGTERM)
    early = [world.popen("run", "--", "echo", "next", stdout=subprocess.PIPE) for _ in range(3)]
    for client in early:
        equal((client.communicate(timeout=30)[0], client.returncode), (b"next\n", 0))
    holder.wait(30)
    if world.daemon_pid() in (0, daemon):
        raise AssertionError("no other daemon has come")


def daemon_cannot_start(world):
    """a daemon that cannot start is not waited for."""
    world.state_dir.write_text("no folder")
    begun = time.monotonic()
    world.capstan("env", "list", code=125)
    contains(world.stderr, "did not start")
    if time.monotonic() - begun > 3:
        raise AssertionError("the client waited for nothing")
    world.state_dir.unlink()


def daemon_silent(world):
    """a daemon that is there but does not answer is waited for 10 s, not for ever."""
    world.capstan("run", "--", "true")
    daemon = world.daemon_pid()
    os.kill(daemon, signal.SIGSTOP)
    try:
        world.capstan("env", "list", code=125)
        contains(world.stderr, "[timeout]")
    finally:
        os.kill(daemon, signal.SIGCONT)
    world.capstan("env", "list")


def raw_octets(world):
    """octets that are no protocol end their own connection and nothing else."""
    world.capstan("run", "--task", "t", "--", "true")
    folder = world.run_dir / "capstan"
    floods = [b"\0" * 4096, b"\xff" * 4096, b"GET / HTTP/1.1\r\n\r\n", os.urandom(65536),
              struct.pack("<II", 0xfffffffe, 1), struct.pack("<II", 0, 0x1fffffff) + b"\0" * 65536]
    for path in sorted(each for each in folder.iterdir() if each.is_socket()):
        for flood in floods:
            with socket.socket(socket.AF_UNIX) as peer:
                peer.settimeout(10)
                peer.connect(str(path))
                try:
                    peer.sendall(flood)
                    while peer.recv(65536):
                        pass
                except ConnectionError:
                    pass
        # And some that say half a word or nothing, and stay.
        for text in (b"", b"\0\0\0\0\xff\0\0\0half"):
            idle = socket.socket(socket.AF_UNIX)
            idle.connect(str(path))
            idle.sendall(text)
            world.idle = getattr(world, "idle", []) + [idle]
    equal(world.capstan("run", "--task", "t", "--", "echo", "well"), "well\n")
    for idle in world.idle:
        idle.close()


def many_connections(world):
    """a daemon that runs out of descriptors serves again once clients have gone."""
    world.capstan("run", "--task", "t", "--", "true")
    resource.prlimit(world.daemon_pid(), resource.RLIMIT_NOFILE, (150, 150))
    log = world.state_dir / "capstand.log"
    idle = []
    while "cannot accept" not in log.read_text() and len(idle) < 300:
        try:
            peer = socket.socket(socket.AF_UNIX)
            peer.setblocking(False)
            peer.connect(str(world.run_dir / "capstan" / "capstan.sock"))
            idle.append(peer)
        except BlockingIOError:  # Its backlog is full.
            time.sleep(0.02)
    wait_until(lambda: "cannot accept" in log.read_text())
    for peer in idle:
        peer.close()
    equal(world.capstan("run", "--task", "t", "--", "echo", "again"), "again\n")


def foreign_socket(world):
    """the default socket of another user is told nothing; only root can play this case."""
    if os.geteuid() != 0:
        return
    nobody = 65534
    (world.run_dir / "capstan").mkdir()
    path = world.run_dir / "capstan" / "capstan.sock"
    made, done = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chmod(world.temp.name, 0o755)
            os.chown(world.run_dir / "capstan", nobody, nobody)
            os.setuid(nobody)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(path))
            listener.listen()
            os.write(done, b"1")
            listener.settimeout(20)
            peer, _ = listener.accept()
            peer.settimeout(20)
            code = 0 if peer.recv(4096) == b"" else 2
        finally:
            os._exit(code)
    os.read(made, 1)
    world.capstan("run", "--env", "TOKEN=planted", "--", "true", code=125)
    contains(world.stderr, "[denied]")
    contains(world.stderr, f"user {nobody}")
    equal(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)


if __name__ == "__main__":
    run_cases([closed_streams, full_output, nothing_inherited, helper_killed, odd_words,
               long_commands, daemon_replaced, daemon_cannot_start, daemon_silent, raw_octets,
               many_connections, foreign_socket])
