"""Processes of a lease, recognised by their environment wherever they are."""

import os
import signal
import time
from collections.abc import Iterable, Set
from contextlib import suppress
from pathlib import Path

from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.job.copies.part import base_directory

_POLL_S, _TIMEOUT_S = 0.02, 10.0


def orphans_of(order: LaunchOrder) -> dict[int, int]:
    """Return the processes of a lease on its order's nodes → their parents.

    A process that is just dying has no environment. The gang's other nodes, which have their own
    keepers, may be on the same machine.
    """
    first = order.lease if order.resumes is None else order.resumes
    # A process that was started before it got the part of a copy had the directory of the job.
    directories = order.checkpoint_dir, base_directory(order.environment, order.checkpoint_dir)
    marks = {f"FAIRLEAD_CHECKPOINT_DIR={directory}".encode() for directory in directories}
    lease = f"FAIRLEAD_LEASE={first}"
    nodes = {f"FAIRLEAD_NODE={node}".encode() for node, _ in order.devices}
    parents = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            variables = set(path.read_bytes().split(b"\0"))
            if not (marks & variables and nodes & variables):
                continue
            # A process that was started before its lease passes that lease's number on.
            known = lease.encode() in variables or _has_home(variables, first)
            if known and int(path.parent.name) != os.getpid():
                stat = (path.parent / "stat").read_text(encoding="utf-8", errors="replace")
                parents[int(path.parent.name)] = int(stat.rpartition(")")[2].split()[1])
    return parents


def _has_home(variables: Set[bytes], first: int) -> bool:
    """Return whether variables name the directory of the first lease of a process."""
    name = "FAIRLEAD_STATUS_FILE="
    return any(
        variable.startswith(name.encode()) and f"/{first}/status.".encode() in variable
        for variable in variables
    )


def processes_of(order: LaunchOrder) -> dict[int, int]:
    """Return the processes of the calling keeper's lease → their parents.

    These are its descendants, also those with an empty environment: a keeper adopts the orphans
    among them. Processes that another program started for the job are known by their environment.
    """
    return {**orphans_of(order), **descendants(os.getpid())}


def reap_adopted(members: Set[int]) -> None:
    """Reap adopted processes that have ended, unless they are members: those are waited for."""
    with suppress(ChildProcessError):
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid in members:
                return
            os.waitpid(ended.si_pid, 0)


def descendants(ancestor: int) -> dict[int, int]:
    """Return the living descendants of a process → their parents."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):
            stat = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if stat[0] not in "ZX":
                parents[int(path.parent.name)] = int(stat[1])
    below_ancestor: dict[int, int] = {}
    level = {ancestor}
    while level:
        below = {pid: parent for pid, parent in parents.items() if parent in level}
        below_ancestor.update(below)
        level = set(below)
    return below_ancestor


def kill_and_wait(processes: Iterable[int]) -> None:
    """Kill processes and wait until they are gone: only then are their devices free."""
    started = {pid: lease_dir.process_start_ticks(pid) for pid in processes}
    for pid in started:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < until:
        if not any_alive(started.items()):
            return
        time.sleep(_POLL_S)


def kill_group(group: int) -> None:
    """Kill the processes of a group, if there are any that this process may kill."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def kill_tree(member: int) -> None:
    """Kill the group of a member and its descendants, also those in other groups."""
    below = descendants(member)
    kill_group(member)
    for pid in below:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def any_alive(started: Iterable[tuple[int, int | None]]) -> bool:
    """Return whether a process of these (PID, start) pairs still lives."""
    return any(at is not None and lease_dir.process_start_ticks(pid) == at for pid, at in started)


def orphans_in(directory: Path) -> set[int]:
    """Return the processes whose lease has this directory, whatever its order says."""
    return {int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_of(path, directory)}


def any_member_alive(directory: Path, started: Iterable[tuple[int, int | None]]) -> bool:
    """Return whether a member of these (PID, start) pairs still lives.

    Processes that are not members do not count: a job may have listed any. A member leads its
    session, and names its lease's directory in its environment, which is empty while it dies.
    """
    return any(_may_be_member(pid, directory) for pid, at in started if any_alive([(pid, at)]))


def find_keeper(directory: Path) -> int | None:
    """Return the process of a lease's keeper, None before it lists its members.

    A job may have listed another process as its keeper; then all processes are searched.
    """
    members, home = lease_dir.read_members(directory), lease_dir.home_of(directory)
    if members is not None and is_keeper(members.keeper, home):
        return members.keeper
    if not (directory / "members.json").exists():
        return None
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return next((pid for pid in pids if is_keeper(pid, home)), None)


def is_keeper(pid: int, directory: Path) -> bool:
    """Return whether a process is the keeper of a lease, by its command line."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"-m" in command and os.fsencode(directory) in command


def _may_be_member(pid: int, directory: Path) -> bool:
    process = Path(f"/proc/{pid}")
    try:
        if os.getsid(pid) != pid:
            return False
        return not (process / "environ").read_bytes() or _is_of(process, directory)
    except OSError:  # gone, or another user's
        return False


def _is_of(process: Path, directory: Path) -> bool:
    """Return whether a process, named by its directory in /proc, is of a lease."""
    mark = b"FAIRLEAD_STATUS_FILE=" + os.fsencode(directory / "status.")
    try:
        variables = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(variable.startswith(mark) for variable in variables)
