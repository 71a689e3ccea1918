#!/usr/bin/env python3
"""Executors, profiles and secrets on the command line, end to end."""
import json
import os
import pty
import signal
import subprocess
import tempfile
from pathlib import Path

from harness import TOOLS, LIMIT, alive, contains, equal, run_cases, wait_until

PLANTED = "planted-secret-41f7ce20"


def put_secret(world, name, value, *options, code=0):
    """Runs `secret set` with the value on stdin."""
    result = subprocess.run([TOOLS / "capstan", "--json", "secret", "set", name, *options],
                            input=value, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=world.env, timeout=LIMIT, check=False)
    world.stderr = result.stderr.decode()
    equal(result.returncode, code)
    return json.loads(result.stdout) if code == 0 else None


def restart(world):
    pid = world.daemon_pid()
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not alive(pid), 30)


def names(world):
    return [row["name"] for row in world.json("executor", "list")["executors"]]


def executors(world):
    """an executor is added, shown, changed key by key, renamed, disabled and removed."""
    equal(names(world), ["Local Docker", "Local PC"])
    made = world.json("executor", "add", "ssh", "build", "ssh_host=h", "ssh_port=22", "own=a=b")
    equal(sorted(made), ["config", "createdAt", "id", "isSystem", "name", "resumable", "status",
                         "type", "updatedAt", "version"])
    equal((made["version"], made["status"], made["isSystem"]), (1, "active", False))
    equal(made["config"], {"own": "a=b", "ssh_host": "h", "ssh_port": "22"})
    changed = world.json("executor", "update", "build", "ssh_port=2222", "own=")
    equal((changed["config"], changed["version"]), ({"ssh_host": "h", "ssh_port": "2222"}, 2))
    equal(world.json("executor", "update", made["id"][:8], "--name", "b2", "--disable")["status"],
          "disabled")
    equal(world.json("executor", "show", "b2")["config"]["ssh_port"], "2222")
    contains(world.capstan("executor", "show", "b2"), "config       ssh_host=h")
    contains(world.capstan("executor", "list"), "disabled")
    world.capstan("executor", "update", "b2", "k=v", "--if-version", "1", code=125)
    contains(world.stderr, "version 3, not 1")
    equal(world.json("executor", "remove", "b2"), {"id": made["id"]})
    equal(names(world), ["Local Docker", "Local PC"])


def refusals(world):
    """what cannot be is refused with its cure, and changes nothing."""
    world.capstan("executor", "add", "vm", "x", code=125)
    contains(world.stderr, "known types: local_pc")
    world.capstan("executor", "add", "ssh", "x", "ssh_host_fingerprint=SHA256:abc", code=125)
    contains(world.stderr, "trusted only once it has been seen")
    world.capstan("executor", "add", "ssh", "Local PC", code=125)
    contains(world.stderr, "[alreadyExists]")
    world.capstan("executor", "remove", "Local PC", code=125)
    contains(world.stderr, "[denied]")
    world.capstan("executor", "show", "exec-", code=125)
    contains(world.stderr, "exec-local-docker (Local Docker), exec-local-pc (Local PC)")
    for words in (["add", "ssh"], ["add", "ssh", "x", "novalue"], ["update", "Local PC"],
                  ["update", "Local PC", "--enable", "--disable"], ["show"],
                  ["default", "Local PC", "--clear"],
                  ["update", "Local PC", "a=1", "--if-version", "0"]):
        world.capstan("executor", *words, code=2)
    equal(names(world), ["Local Docker", "Local PC"])
    for command in ("executor add", "executor default", "profile update", "secret set",
                    "secret disallow"):
        contains(world.capstan(*command.split(), "--help"), f"example: capstan {command}")
    overview = world.capstan("--help")
    if "executor test" in overview or "executor trust" in overview:
        raise AssertionError("the help shows commands that are not there")


def unavailable(world):
    """a task on an executor whose runtime is not there is refused, and never runs here."""
    world.capstan("executor", "add", "sprites", "s1")
    marker = world.run_dir / "ran"
    world.capstan("run", "--executor", "s1", "--", "touch", marker, code=125)
    contains(world.stderr, "[runtimeUnavailable]")
    world.capstan("executor", "default", "s1")
    world.capstan("run", "--", "touch", marker, code=125)
    contains(world.stderr, "[runtimeUnavailable]")
    world.capstan("executor", "default", "Local PC", "--tenant", "acme")
    equal(world.capstan("run", "--tenant", "acme", "--", "echo", "here"), "here\n")
    equal(world.capstan("run", "--executor", "Local PC", "--", "echo", "here"), "here\n")
    equal(marker.exists(), False)
    world.capstan("executor", "update", "Local PC", "--disable")
    world.capstan("run", "--executor", "Local PC", "--", "true", code=125)
    contains(world.stderr, "--enable")


def defaults(world):
    """default executors are set, shown, cleared, and hold their executor."""
    made = world.json("executor", "add", "ssh", "build")["id"]
    world.capstan("executor", "default", "build")
    equal(world.json("executor", "default", "Local PC", "--tenant", "acme"),
          {"defaults": [{"tenantId": "acme", "executorId": "exec-local-pc"}]})
    equal(world.json("executor", "default")["defaults"],
          [{"tenantId": "", "executorId": made},
           {"tenantId": "acme", "executorId": "exec-local-pc"}])
    contains(world.capstan("executor", "default"), "(all)")
    world.capstan("executor", "remove", "build", code=125)
    contains(world.stderr, "capstan executor default --clear")
    world.capstan("executor", "default", "--clear")
    world.capstan("executor", "remove", "build")


def profiles(world):
    """a profile keeps what an update does not name; an empty script is cleared."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "setup.sh"
        script.write_text("echo ready\n")
        made = world.json("profile", "add", "Local PC", "node", "k=v", "--env", "A=1", "--env",
                          "T=secret:tok", "--prepare-script", script, "--mcp-policy", "none")
        equal(sorted(made), ["cleanupScript", "config", "createdAt", "executorId", "id",
                             "mcpPolicy", "name", "prepareScript", "updatedAt", "variables",
                             "version"])
        equal(made["prepareScript"], "echo ready\n")
        equal(made["variables"], [{"key": "A", "literal": "1"}, {"key": "T", "secret": "tok"}])
        piped = subprocess.run([TOOLS / "capstan", "--json", "profile", "update", "node",
                                "--cleanup-script", "-"], input=b"rm x\n", env=world.env,
                               stdout=subprocess.PIPE, timeout=LIMIT, check=True)
        equal(json.loads(piped.stdout)["cleanupScript"], "rm x\n")
        script.write_text("")
        changed = world.json("profile", "update", "node", "k=", "x=1", "--env", "A=", "--env",
                             "B=2", "--prepare-script", script)
        equal((changed["prepareScript"], changed["cleanupScript"]), ("", "rm x\n"))
        equal((changed["config"], changed["version"]), ({"x": "1"}, 3))
        equal(changed["variables"], [{"key": "T", "secret": "tok"}, {"key": "B", "literal": "2"}])
        world.capstan("profile", "update", "node", "--prepare-script", "/no/such", code=2)
        world.capstan("profile", "add", "Local PC", "node", code=125)
        contains(world.stderr, "[alreadyExists]")
        contains(world.capstan("profile", "show", "node"), "  rm x\n")
        contains(world.capstan("profile", "list"), made["id"])
        equal(world.json("profile", "remove", "node"), {"id": made["id"]})
        equal(world.json("profile", "list"), {"profiles": []})


def racing_updates(world):
    """updates of different keys at the same time all stay."""
    world.capstan("executor", "add", "ssh", "e")
    clients = [world.popen("executor", "update", "e", f"k{i}=v{i}", stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE) for i in range(6)]
    for client in clients:
        _, err = client.communicate(timeout=LIMIT)
        equal((client.returncode, err), (0, b""))
    equal(world.json("executor", "show", "e")["config"], {f"k{i}": f"v{i}" for i in range(6)})


def after_restart(world):
    """everything is there after the daemon was ended, and after it was killed."""
    world.capstan("executor", "add", "ssh", "e", "k=v")
    world.capstan("profile", "add", "e", "p", "--env", "A=1")
    world.capstan("executor", "default", "e", "--tenant", "acme")
    put_secret(world, "s", b"x")
    world.capstan("secret", "allow", "s", "p")

    def state():
        return [world.json(*words) for words in (
            ["executor", "list"], ["profile", "list"], ["executor", "default"],
            ["secret", "list"])]
    before = state()
    restart(world)
    equal(state(), before)
    pid = world.daemon_pid()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid))
    equal(state(), before)


def secrets(world):
    """a secret is set, listed without its value, allowed, sealed anew and removed."""
    equal(put_secret(world, "tok", b"one\n"), {"name": "tok", "made": True})
    equal(put_secret(world, "tok", b"two\n", "--exact"), {"name": "tok", "made": False})
    profile = world.json("profile", "add", "Local PC", "node")["id"]
    equal(world.json("secret", "allow", "tok", "node"),
          {"name": "tok", "environmentId": "", "profileId": profile})
    row = world.json("secret", "list")["secrets"][0]
    equal(sorted(row), ["createdAt", "environmentIds", "name", "profileIds", "updatedAt"])
    equal(row["profileIds"], [profile])
    contains(world.capstan("secret", "list"), profile)
    key = (world.state_dir / "secret.key").read_bytes()
    equal(world.json("secret", "rotate"), {"resealed": 1})
    equal((world.state_dir / "secret.key").read_bytes() == key, False)
    world.capstan("secret", "disallow", "tok", "node")
    equal(world.json("secret", "list")["secrets"][0]["profileIds"], [])
    world.capstan("secret", "allow", "tok", "nowhere", code=125)
    contains(world.stderr, "no environment and no profile")
    world.capstan("secret", "allow", "none", "node", code=125)
    contains(world.stderr, "[notFound]")
    put_secret(world, "tok", b"\n", code=2)
    put_secret(world, "bad name", b"x", code=125)
    put_secret(world, "big", b"x" * (1 << 20), code=2)
    put_secret(world, "big", b"x" * ((1 << 20) - 4096))
    world.capstan("secret", "remove", "tok")
    world.capstan("secret", "remove", "tok", code=125)
    terminal, other = pty.openpty()
    world.capstan("secret", "set", "tok", stdin=other, code=2)
    contains(world.stderr, "capstan secret set tok < FILE")
    os.close(terminal)
    os.close(other)


def bound_secrets(world):
    """a launch gets the secrets bound to its environment or its profile, and no others."""
    put_secret(world, "tok", PLANTED.encode())
    put_secret(world, "other", b"x")

    def show(*options, task="t", code=0):
        return world.capstan("run", "--task", task, *options, "--", "sh", "-c", "echo $K $A",
                             code=code)
    show("--env", "K=secret:tok", code=125)
    unbound = world.stderr
    contains(unbound, "[notFound]")
    show("--env", "K=secret:none", code=125)
    equal(world.stderr, unbound)
    equal(show("--env", "A=1"), "1\n")
    world.capstan("secret", "allow", "tok", "t")
    equal(show("--env", "K=secret:tok"), PLANTED + "\n")
    show("--env", "K=secret:other", code=125)
    show("--env", "K=secret:tok", task="u", code=125)
    world.capstan("secret", "disallow", "tok", "t")
    show("--env", "K=secret:tok", code=125)

    world.capstan("profile", "add", "Local PC", "p", "--env", "K=secret:tok", "--env", "A=2")
    equal(show("--profile", "p", task="v"), PLANTED + " 2\n")
    equal(world.capstan("exec", "v", "--", "sh", "-c", "echo $K"), PLANTED + "\n")
    equal(world.json("env", "show", "v")["profileId"], world.json("profile", "show", "p")["id"])
    show("--profile", "p", task="t", code=125)
    contains(world.stderr, "[executorMismatch]")
    show("--env", "A=3", task="v", code=125)
    contains(world.stderr, "[variableConflict]")
    world.capstan("profile", "remove", "p", code=125)
    contains(world.stderr, "of task 'v'")
    world.capstan("env", "destroy", "v")
    world.capstan("profile", "remove", "p")
    for path in world.state.rglob("*"):
        # What the agents printed is theirs.
        if path.is_file() and "environments" not in path.parts:
            if PLANTED.encode() in path.read_bytes():
                raise AssertionError(f"the planted secret is to be seen in {path}")


def never_shown(world):
    """a secret's value stands in no file, log, list or error."""
    shown = []
    put_secret(world, "tok", PLANTED.encode())
    put_secret(world, "tok", (PLANTED + "-again").encode())
    put_secret(world, "large", (PLANTED * 20000).encode())
    put_secret(world, "bad name", PLANTED.encode(), code=125)
    shown.append(world.stderr)
    world.capstan("profile", "add", "Local PC", "p", "--env", "T=secret:tok")
    world.capstan("secret", "rotate")
    for words in (["secret", "list"], ["profile", "show", "p"], ["--json", "secret", "list"]):
        shown.append(world.capstan(*words))
    for path in world.state.rglob("*"):
        if path.is_file():
            shown.append(path.read_bytes().decode(errors="replace"))
    for text in shown:
        if PLANTED in text:
            raise AssertionError("the planted secret is to be seen")
    names_there = {path.name for path in world.state_dir.iterdir()}
    equal({"capstan.db", "capstan.db-wal", "capstand.log", "secret.key"} <= names_there, True)


def without_key(world):
    """a daemon whose key is gone does not start, and makes no new one."""
    put_secret(world, "tok", b"x")
    restart(world)
    (world.state_dir / "secret.key").unlink()
    world.capstan("executor", "list", code=125)
    contains(world.stderr, "secret.key")
    equal((world.state_dir / "secret.key").exists(), False)


if __name__ == "__main__":
    run_cases([executors, refusals, unavailable, defaults, profiles, racing_updates, after_restart,
               secrets, bound_secrets, never_shown, without_key])
