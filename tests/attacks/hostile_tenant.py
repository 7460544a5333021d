"""The job of a hostile tenant: one attack on the files that it can reach, named by its argument.

``python hostile_tenant.py ATTACK [ARGUMENT…]`` runs on an engine, with the environment of a
member; it uses the standard library only. Attacks that run until they are stopped create the file
in their last argument once they are ready.
"""

import fcntl
import glob
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

CHECKPOINTS = os.environ["FAIRLEAD_CHECKPOINT_DIR"]
LOGS = os.path.join(os.path.dirname(CHECKPOINTS), "logs")
LEASE_DIR = os.path.dirname(os.environ["FAIRLEAD_STATUS_FILE"])
LEASE = int(os.environ["FAIRLEAD_LEASE"])
LONG = "a" * 300
"""name that no file can have: some calls on a link to it fail"""


def attempt(call: Callable[..., Any], *arguments: object) -> Any:
    """Make a call that the system may refuse."""
    try:
        return call(*arguments)
    except OSError:
        return None


def replace_by_link(path: str, target: str) -> None:
    attempt(os.unlink, path)
    attempt(os.symlink, target, path)


def write(path: str, text: str) -> None:
    attempt(os.unlink, path)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def wait_to_be_stopped(ready: str) -> None:
    open(ready, "w", encoding="ascii").close()
    time.sleep(600)


def links(bait: str) -> None:
    """Put links, hard links and FIFOs to others' files wherever a hand-over may find them."""
    for directory in (CHECKPOINTS, LOGS, LEASE_DIR):
        for name in ("model.ckpt", "1-1.0.ckpt", "keeper.log.old"):
            replace_by_link(os.path.join(directory, name), bait)
        attempt(os.symlink, os.path.dirname(bait), os.path.join(directory, "deep"))
        attempt(os.link, bait, os.path.join(directory, "hard"))
        attempt(os.mkfifo, os.path.join(directory, "fifo"))
    for name in ("lock", "fence"):
        replace_by_link(os.path.join(CHECKPOINTS, name), bait)
    sys.exit(1)


def logs(token: str) -> None:
    """Pass the admin's token off as the output of the job."""
    replace_by_link(os.path.join(LOGS, f"{LEASE}.0.log"), token)
    replace_by_link(os.path.join(LOGS, f"{LEASE}.1.log"), token)
    replace_by_link(os.path.join(LOGS, f"{LEASE}.0.log.{1:016d}"), token)
    attempt(os.link, token, os.path.join(LOGS, "1.0.log"))
    attempt(os.mkfifo, os.path.join(LOGS, "0.0.log"))


def latest(content: str) -> None:
    """Leave a committed checkpoint that is damaged, a FIFO or huge."""
    path = os.path.join(CHECKPOINTS, "latest.json")
    if content == "fifo":
        os.mkfifo(path)
    elif content == "huge":
        with open(path, "w", encoding="ascii") as file:
            file.truncate(1 << 34)
    else:
        write(path, content)


def forge(victim: str) -> None:
    """Write ends of another lease, and garbage, into every directory."""
    end = {"lease": int(victim), "ending": "failed", "steps": 0, "message": "forged"}
    leases = os.path.dirname(os.path.dirname(LEASE_DIR))
    for directory in (LEASE_DIR, CHECKPOINTS, LOGS, os.path.dirname(LEASE_DIR)):
        attempt(write, os.path.join(directory, "exit.json"), json.dumps(end))
    for directory in [*glob.glob(f"{leases}/{victim}*"), f"{leases}/{victim}/0"]:
        attempt(write, os.path.join(directory, "exit.json"), json.dumps(end))
    time.sleep(3.0)  # until the server has read it
    write(os.path.join(LEASE_DIR, "exit.json"), "{")


def lock(ready: str) -> None:
    """Hold the locks of the own files in a process that outlives the job."""
    if os.fork():
        while not os.path.exists(ready):
            time.sleep(0.05)
        sys.exit(1)
    os.setsid()
    if os.fork():
        os._exit(0)
    for path in (os.path.join(CHECKPOINTS, "lock"), os.path.join(LEASE_DIR, "alive")):
        attempt(os.unlink, path)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        attempt(fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.closerange(0, 3)
    wait_to_be_stopped(ready)


def redirect(bait: str, server: str, ready: str) -> None:
    """Replace the files that server and keeper write by links, then refuse to leave."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for directory in (LEASE_DIR, CHECKPOINTS):
        for name in ("stop", "fence", "here.json", "beat", "alive", "exit.json"):  # lang: ok
            replace_by_link(os.path.join(directory, name), bait)
            os.makedirs(os.path.join(directory, f"{name}.{server}.tmp", "inside"), exist_ok=True)
    replace_by_link(os.path.join(LEASE_DIR, "members.json"), LONG)
    replace_by_link(os.path.join(LEASE_DIR, "carrying"), LONG)
    wait_to_be_stopped(ready)


def delete(known: str, ready: str) -> None:
    """Delete the own lease directory while the job runs; a later lease fails if it still does.

    It waits until its lease is known: the file ``known`` says so.
    """
    marker = os.path.join(CHECKPOINTS, "deleted")
    if os.path.exists(marker):
        with open(marker, encoding="ascii") as file:
            sys.exit(int(os.path.exists(f"/proc/{file.read()}")))
    write(marker, str(os.getpid()))
    while not os.path.exists(known):
        time.sleep(0.05)
    shutil.rmtree(LEASE_DIR, ignore_errors=True)
    wait_to_be_stopped(ready)


def fence() -> None:
    """Refuse all later leases of the job."""
    write(os.path.join(CHECKPOINTS, "fence"), str(10**15))
    sys.exit(1)


def stubborn(ready: str) -> None:
    """Ignore the stop signal."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wait_to_be_stopped(ready)


def corrupt(ready: str) -> None:
    """Commit a checkpoint whose file is damaged, then wait."""
    name = f"{LEASE}-10.0.ckpt"
    write(os.path.join(CHECKPOINTS, name), "0" * 64 + "not the payload")
    committed = {"lease": LEASE, "steps": 10, "files": [name]}
    write(os.path.join(CHECKPOINTS, "latest.json"), json.dumps(committed))
    wait_to_be_stopped(ready)


def print_forever(ready: str) -> None:
    """Print as fast as possible."""
    open(ready, "w", encoding="ascii").close()
    while True:
        sys.stdout.write("x" * (1 << 16) + "\n")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
