"""Leases on Slurm: one part per node, in directories that scheduler and nodes share.

```
leases/<lease>/order.json   the order                   parts      number of parts
               exit.json    the end of the lease, once all parts have ended
               over         keepers may release the devices
               <part>/      a keeper's lease directory, with heartbeat, here.json, stop, carrying
```
"""

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fairlead import untrusted_file
from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.engines.shared import multi_node
from fairlead.engines.shared.multi_node import saved_steps, split_by_node
from fairlead.job import checkpoint
from fairlead.model.lease_outcome import LeaseOutcome
from fairlead.untrusted_file import UnusableFileError

_LOCK_TIMEOUT_S = 2.0
"""seconds that a job may hold the lock of its checkpoints when its lease is lost"""
_TAIL_BYTES = 4096
"""bytes at the end of a keeper's log that may hold its last line"""
HEARTBEAT_FILE = "beat"  # lang: ok
"""file in a part's directory that its keeper touches every second"""


@dataclass(frozen=True, slots=True)
class PartFiles:
    """State of a part as its files show it."""

    ended: Ended | None
    has_started: bool
    transfers: bool
    heartbeat: int | None
    removed: bool
    """its directory is gone"""


@dataclass(slots=True)
class SlurmLeasePart:
    """The part of a lease on one node, with its last known state."""

    directory: Path
    name: str
    """name of the Slurm job"""
    order: LaunchOrder
    user: int
    """Unix user ID that the Slurm job runs as"""
    ended: Ended | None = None
    has_started: bool = False
    transfers: bool = False
    """members have ended, and their last checkpoint is being transferred"""
    heartbeat: int | None = None
    """time of the keeper's last heartbeat in nanoseconds, by the file server's clock"""
    heartbeat_seen_at: float | None = None
    """monotonic time at which that heartbeat was seen; None: there was none yet"""
    runs_since: float | None = None
    """monotonic time at which Slurm first reported it running"""
    removed: bool = False
    """its directory is gone, so that its keeper can report nothing"""

    @property
    def node(self) -> str:
        """Name of its node."""
        return self.order.devices[0][0]

    def read(self) -> PartFiles | None:
        """Return the state that its files show, None once it has ended; changes nothing."""
        if self.ended is not None:
            return None
        return PartFiles(
            lease_dir.read_ended(self.directory, self.order.lease),
            # Not Path.exists(), which follows links of the job and fails on some of them.
            self.has_started or os.path.lexists(self.directory / "members.json"),
            os.path.lexists(self.directory / "carrying"),
            _mtime_ns(self.directory / HEARTBEAT_FILE),
            removed=_is_removed(self.directory),
        )

    def update(self, files: PartFiles | None, now: float, age_s: Callable[[int], float]) -> None:
        """Apply the state of its files; ``age_s`` returns the age of the first heartbeat seen."""
        if files is None or self.ended is not None:
            return
        self.ended = files.ended
        self.has_started = files.has_started
        self.transfers, self.removed = files.transfers, files.removed
        if files.heartbeat is not None and files.heartbeat != self.heartbeat:
            age = age_s(files.heartbeat) if self.heartbeat is None else 0.0
            self.heartbeat_seen_at = now - age
            self.heartbeat = files.heartbeat

    def last_output_line(self) -> str:
        """Return the last line in the log of its keeper or, before that, of Slurm."""
        try:
            descriptor = untrusted_file.open_owned(self.directory / "keeper.log")
            with open(descriptor, "rb") as file:
                file.seek(max(os.fstat(descriptor).st_size - _TAIL_BYTES, 0))
                lines = file.read(_TAIL_BYTES).decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")

    def quiet_s(self, now: float) -> float:
        """Return the seconds since the last sign of life of a keeper that should run."""
        last = [at for at in (self.heartbeat_seen_at, self.runs_since) if at is not None]
        return now - max(last) if last else 0.0

    def answers(self, now: float, silence_s: float) -> bool:
        """Return whether the last heartbeat is within the allowed silence."""
        return self.heartbeat_seen_at is not None and self.quiet_s(now) <= silence_s


@dataclass(slots=True)
class TrackedSlurmLease:
    """A lease whose end has not been reported."""

    order: LaunchOrder
    directory: Path
    parts: list[SlurmLeasePart]
    since: float
    """monotonic time at which it was submitted or recovered"""
    submitted: bool = False
    fresh: bool = True
    """submitted by this scheduler process, not by an earlier one"""
    wanted: bool = True
    """False for an orphan, whose end is not reported"""
    has_started: bool = False
    steps: float = -1.0
    """last reported steps, for jobs without the job library"""
    stop_at: float | None = None
    """monotonic time of the stop request"""

    @property
    def lease(self) -> int:
        """Number of the lease."""
        return self.order.lease

    def printed_steps(self) -> float | None:
        """Return the steps parsed from the job's output, None if there are none."""
        if self.order.progress_pattern is None:
            return None
        steps = [lease_dir.read_progress(part.directory) for part in self.parts]
        return max((each for each in steps if each is not None), default=None)

    def request_stop(self, grace_s: float) -> None:
        """Write a stop request for the keepers; where that fails, Slurm stops them later."""
        for part in self.parts:
            if part.ended is None:
                with suppress(OSError):
                    lease_dir.write_json(part.directory / "stop", {"grace_s": grace_s})

    def declare_lost(self, part: SlurmLeasePart, ending: LeaseOutcome, why: str) -> None:
        """End a part that does not answer, fence its writers and keep it from starting."""
        order = self.order
        # A later lease of the job has started, or the job itself has damaged or locked its files.
        with suppress(checkpoint.FencedError, UnusableFileError, checkpoint.LockHeldError):
            checkpoint.raise_fence(order.checkpoint_dir, order.lease + 1, wait_s=_LOCK_TIMEOUT_S)
        ended = lease_dir.read_ended(part.directory, order.lease)
        # In a directory that a job has removed no keeper starts.
        with suppress(FileNotFoundError, NotADirectoryError):
            # An unreachable keeper that still lives holds the lock; then only the fence protects.
            lock = lease_dir.try_lock(part.directory)
            ended = lease_dir.read_ended(part.directory, order.lease)
            if ended is None:
                ended = Ended(order.lease, ending, saved_steps(order), why)
                lease_dir.write_ended(part.directory, ended)
            if lock is not None:
                lock.close()
        part.ended = ended or Ended(order.lease, ending, saved_steps(order), why)

    def end(self) -> Ended | None:
        """Persist and return the end of the lease; None while a part is still running."""
        return multi_node.conclude(self.directory, self.order, [part.ended for part in self.parts])


def write(
    directory: Path, order: LaunchOrder, name: str, addresses: Mapping[str, str], user: int = 0
) -> list[SlurmLeasePart]:
    """Write the parts of an order for their keepers; ``addresses`` maps nodes to hosts."""
    orders = split_by_node(order)
    if len(orders) > 1:
        first = orders[0].devices[0][0]
        host = addresses.get(first, first)
        orders = [replace(part, meets_at=f"{host}:0") for part in orders]
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    (directory / "parts").write_text(str(len(orders)), encoding="ascii")
    for number, part in enumerate(orders):
        lease_dir.write_order(directory / str(number), part)
    lease_dir.write_order(directory, order)
    return read(directory, order, name, user)


def read(directory: Path, order: LaunchOrder, name: str, user: int = 0) -> list[SlurmLeasePart]:
    """Return the parts in a lease directory."""
    return [
        SlurmLeasePart(directory / str(number), f"{name}.{number}", part, user)
        for number, part in enumerate(split_by_node(order))
    ]


def list_directories(root: Path) -> list[Path]:
    """Return the lease directories; complete interrupted removals."""
    for path in root.glob(".[0-9]*"):
        with suppress(OSError):
            untrusted_file.remove_tree(path)
    directories = lease_dir.list_leases(root).values()
    return [path for path in directories if os.path.lexists(path / "order.json")]


def release_devices(root: Path, leases: Collection[int]) -> None:
    """Allow the keepers of ended leases to release their devices."""
    for lease in leases:
        with suppress(OSError):  # keepers release them soon in any case
            (root / str(lease) / "over").touch()


def remove(directory: Path) -> bool:
    """Remove the directory of an ended lease; return False if a keeper is still alive."""
    if not directory.exists():
        return True
    if any(lease_dir.is_alive(part) for part in directory.glob("[0-9]*")):
        return False
    # Rename it first: a keeper that starts meanwhile finds the whole directory or none.
    aside = directory.with_name(f".{directory.name}")
    directory.rename(aside)
    with suppress(OSError):  # the next start of the server retries
        untrusted_file.remove_tree(aside)
    return True


def file_server_time_ns(path: Path) -> int:
    """Return the time by the file server's clock, in nanoseconds."""
    path.touch()
    os.utime(path)
    return path.stat().st_mtime_ns


def _is_removed(directory: Path) -> bool:
    """Return whether a part's directory is gone, and not the whole file system with it."""
    try:
        os.lstat(directory)
    except (FileNotFoundError, NotADirectoryError):
        return directory.parent.parent.is_dir()
    return False


def _mtime_ns(path: Path) -> int | None:
    """Return a file's modification time; opening it makes network file systems revalidate it."""
    try:
        descriptor = untrusted_file.open_regular(path)
    except (FileNotFoundError, UnusableFileError):
        return None
    try:
        return os.fstat(descriptor).st_mtime_ns
    finally:
        os.close(descriptor)
