#!/usr/bin/env python3
"""Workspaces of clones, end to end."""
import json
import os
import signal
import subprocess
from pathlib import Path

from harness import alive, contains, equal, run_cases, wait_until


def git(*words, cwd):
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example", *words], cwd=cwd,
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def repository(world, name):
    """A repository with the branches main and other; its url."""
    folder = world.state_dir.parent / name
    folder.mkdir(parents=True)
    git("init", "-q", "-b", "main", cwd=folder)
    for branch in ("main", "other"):
        if branch != "main":
            git("checkout", "-q", "-b", branch, cwd=folder)
        (folder / "what").write_text(f"{name} {branch}\n")
        git("add", "-A", cwd=folder)
        git("commit", "-q", "-m", branch, cwd=folder)
    git("checkout", "-q", "main", cwd=folder)
    return f"file://{folder}"


def one_clone(world):
    """one clone is the workspace; a later run finds the work done in it."""
    url = repository(world, "a")
    equal(world.capstan("run", "--task", "t", "--clone", url + "#other", "--", "cat", "what"),
          "a other\n")
    world.capstan("run", "--task", "t", "--", "sh", "-c", "echo mine >what")
    world.capstan("env", "stop", "t")
    equal(world.capstan("run", "--task", "t", "--", "cat", "what"), "mine\n")
    equal(world.capstan("run", "--task", "t", "--clone", url + "#other", "--", "cat", "what"),
          "mine\n")
    steps = world.json("env", "show", "t")["lastSteps"]
    equal([(step["name"], step["status"]) for step in steps][-1], ("Clone a", "skipped"))
    world.capstan("run", "--task", "t", "--clone", url, "--", "true", code=125)
    contains(world.stderr, "[wrongState]")
    contains(world.stderr, "env destroy")
    workspace = Path(world.json("env", "show", "t")["workspace"])
    world.capstan("env", "destroy", "t")
    equal(workspace.exists(), False)


def several_clones(world):
    """several clones go to folders named after them."""
    a, b = repository(world, "a"), repository(world, "b")
    equal(world.capstan("run", "--clone", a, "--clone", b + "#other", "--", "sh", "-c",
                        "ls; cat a/what b/what"), "a\nb\na main\nb other\n")


def refusals(world):
    """what cannot be cloned is refused before or fails with git's words; nothing is left."""
    url = repository(world, "a")
    world.capstan("run", "--clone", url, "--clone", url, "--", "true", code=2)
    contains(world.stderr, "both be cloned to a")
    world.capstan("run", "--clone", url, "--workspace", "/tmp", "--", "true", code=2)
    world.capstan("run", "--clone", url + "#", "--", "true", code=2)
    world.capstan("run", "--clone", "ext::sh -c true", "--", "true", code=125)
    contains(world.stderr, "[invalidArgument]")
    world.capstan("run", "--clone", "https://me:hunter2@git.example/a", "--", "true", code=125)
    contains(world.stderr, "credential helper")
    equal("hunter2" in world.stderr, False)
    equal(world.json("env", "list")["environments"], [])

    world.capstan("run", "--task", "t", "--clone", url + "-none", "--", "true", code=125)
    contains(world.stderr, "[prepareFailed]")
    contains(world.stderr, "  | fatal: ")
    world.capstan("run", "--json", "--task", "u", "--clone", url + "#none", "--", "true", code=125)
    error = json.loads(world.stderr)["error"]
    equal((error["code"], error["field"]),
          ("prepareFailed", "spec.workspace.repositories[0].ref"))
    contains(world.capstan("env", "show", "t"), "  | fatal: ")
    step = world.json("env", "show", "u")["lastSteps"][-1]
    equal(step["status"], "failed")
    equal(list(Path(world.json("env", "show", "u")["workspace"]).iterdir()), [])


def stopped_while_cloning(world):
    """stop and destroy do not wait for a clone, and end it."""
    url = repository(world, "a")
    tools = world.state_dir.parent / "bin"
    tools.mkdir()
    slow = tools / "git"
    slow.write_text("#!/bin/sh\necho $$ >$0.pid; exec sleep 1000\n")
    slow.chmod(0o755)
    world.env["PATH"] = f"{tools}:{world.env['PATH']}"
    pid_file = Path(str(slow) + ".pid")
    for words in (("env", "stop"), ("env", "destroy")):
        client = world.popen("run", "--task", "t", "--clone", url, "--", "true",
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: pid_file.exists() and pid_file.read_text(), 30)
        world.capstan(*words, "t")
        equal(client.wait(30), 125)
        pid = int(pid_file.read_text())
        wait_until(lambda gone=pid: not alive(gone), 15)
        pid_file.unlink()
    equal(world.json("env", "list")["environments"], [])


def daemon_killed_while_cloning(world):
    """a daemon that is killed in the middle of a clone leaves nothing that looks like one."""
    url = repository(world, "a")
    tools = world.state_dir.parent / "bin"
    tools.mkdir()
    slow = tools / "git"
    slow.write_text("#!/bin/sh\n/usr/bin/git \"$@\" || exit\n"
                    "case \" $* \" in *' checkout '*) echo $$ >$0.pid; sleep 1000 ;; esac\n")
    slow.chmod(0o755)
    path = world.env["PATH"]
    world.env["PATH"] = f"{tools}:{path}"
    client = world.popen("run", "--task", "t", "--clone", url, "--", "cat", "what",
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid_file = Path(str(slow) + ".pid")
    wait_until(lambda: pid_file.exists() and pid_file.read_text(), 30)
    os.kill(world.daemon_pid(), signal.SIGKILL)
    client.wait(30)
    # Its helper ends the clone, which belongs to nobody any more.
    wait_until(lambda: not alive(int(pid_file.read_text())), 30)
    world.env["PATH"] = path
    wait_until(lambda: world.json("env", "show", "t")["state"] != "recovering", 30)
    equal(world.capstan("run", "--task", "t", "--clone", url, "--", "sh", "-c",
                        "git status --porcelain; ls -A; cat what"), ".git\nwhat\na main\n")


if __name__ == "__main__":
    run_cases([one_clone, several_clones, refusals, stopped_while_cloning, daemon_killed_while_cloning])
