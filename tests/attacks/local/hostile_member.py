"""The job of a hostile tenant on the local engine: one attack, named by its first argument.

``python hostile_member.py ATTACK [ARGUMENT…]`` prints a line ``BROKEN …`` for every boundary that
it crosses. It uses the standard library only.
"""

import fcntl
import glob
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

CHECKPOINTS = os.environ["FAIRLEAD_CHECKPOINT_DIR"]
CONTROL = CHECKPOINTS + ".control"
JOB = os.path.dirname(CHECKPOINTS)
LEASE_DIR = os.path.dirname(os.environ["FAIRLEAD_STATUS_FILE"])
DATA = os.path.dirname(os.path.dirname(LEASE_DIR))


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def crosses(name: str, call: Callable[..., object], *arguments: object) -> None:
    """Print that a call succeeded which the system must refuse."""
    try:
        call(*arguments)
    except OSError:
        return
    say("BROKEN", name, *arguments)


def read(path: str) -> None:
    with open(path, "rb") as file:
        file.read(1)


def append(path: str) -> None:
    with open(path, "ab") as file:
        file.write(b"x")


def look_around(server: str, keeper: str, victim: str) -> None:
    """Read and write all that belongs to the server and to the other tenant."""
    secrets = ["admin.token", "fairlead.db", "server.json", "fairlead.toml", "secrets.key"]
    paths = [os.path.join(DATA, name) for name in secrets]
    for lease in (LEASE_DIR, victim):
        names = ("order.json", "alive", "exit.json", "stop", "members.json", "cgroup.json")
        paths += [os.path.join(lease, name) for name in names]
    for job in ("j1", "j2", "j3"):
        logs = os.path.join(DATA, "jobs", job, "logs")
        paths += [logs, os.path.join(logs, "1.0.log"), os.path.join(logs, "2.0.log")]
        if os.path.join(DATA, "jobs", job) != JOB:
            paths.append(os.path.join(DATA, "jobs", job, "checkpoint", "latest.json"))
    for path in paths:
        crosses("read", read, path)
        crosses("append", append, path)
        crosses("unlink", os.unlink, path)
    for directory in (DATA, JOB, LEASE_DIR, victim, CONTROL, os.path.join(JOB, "logs")):
        crosses("create", append, os.path.join(directory, "planted"))
        crosses("rename", os.rename, directory, directory + ".moved")
    for directory in (DATA, os.path.join(DATA, "leases"), os.path.join(JOB, "logs")):
        crosses("list", os.listdir, directory)
    for pid in (int(server), int(keeper), os.getppid()):
        crosses("environ", read, f"/proc/{pid}/environ")
        crosses("memory", read, f"/proc/{pid}/mem")
        crosses("signal", os.kill, pid, signal.SIGUSR1)
    raise_fence()
    for name in os.environ:
        if "hunter2" in os.environ[name]:
            say("BROKEN environment", name)
    crosses("root", os.setuid, 0)
    crosses("leave the control group", append, "/sys/fs/cgroup/unified/cgroup.procs")
    crosses("leave the control group", append, "/sys/fs/cgroup/cgroup.procs")
    say("looked around as", os.getuid(), os.getgroups(), os.environ["HOME"], os.getcwd())


def raise_fence() -> None:
    """Raise the fence of the own job for ever."""
    for name in ("fence", "lock"):
        crosses("append", append, os.path.join(CONTROL, name))
        crosses("unlink", os.unlink, os.path.join(CONTROL, name))
    with open(os.path.join(CHECKPOINTS, "fence"), "w", encoding="ascii") as file:
        file.write("9" * 17)  # has no effect there


def daemon(mark: str) -> None:
    """Leave a process in a session of its own, with an empty environment; hold the lock."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            lock = os.open(os.path.join(CONTROL, "lock"), os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.set_inheritable(lock, True)
            os.execve("/bin/sleep", ["sleep", mark], {})
        os._exit(0)
    os.wait()
    while f"sleep\0{mark}\0" not in running():
        time.sleep(0.02)


def running() -> Iterator[str]:
    """Yield the command lines of all processes."""
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with suppress(OSError), open(path, "rb") as file:
            yield file.read().decode(errors="replace")


def orphan(mark: str) -> None:
    """Leave a daemon and wait to be killed; in the second lease, end."""
    second = os.path.join(CHECKPOINTS, "second")
    if os.path.exists(second):
        return
    open(second, "w", encoding="ascii").close()
    daemon(mark)
    say("ready")
    time.sleep(600)


def bomb() -> None:
    """Fork for ever."""
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.1)


def hog() -> None:
    """Use more memory than there is."""
    held = []
    while True:
        held.append(b"x" * (16 << 20))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
