"""A node's copies of checkpoints and logs, where nodes share no directory.

The data directory is authoritative: a checkpoint is committed once it is there, under the fence
that the server raises. A node holds copies: files that members have saved and files that were
transferred to them. The engines' transfer modules name files by paths relative to the scheduler's
home on the node, which cannot lead out of it.
"""

import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairlead import untrusted_file
from fairlead.code_snapshot.archive import verify
from fairlead.code_snapshot.location import SUFFIX, code_dir, remove_code
from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper import log_file
from fairlead.job import checkpoint
from fairlead.job.committed import CommittedCheckpoint
from fairlead.untrusted_file import UnusableFileError

JOB_FILE_ERRORS = (checkpoint.FencedError, checkpoint.LockHeldError, UnusableFileError)
"""errors that a job can cause by the files of its checkpoints: the job's failure"""
_LOCK_TIMEOUT_S = 5.0
"""seconds that a job may hold the lock of its checkpoints on the node"""


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """All members of a part have written their files of a checkpoint."""

    lease: int
    steps: int
    committed: bool
    """rank 0 runs on this node and has committed the checkpoint"""
    positions: tuple[int, ...] = ()
    """of a copy: the items that it was past"""


def with_node_paths(order: LaunchOrder, home: str) -> LaunchOrder:
    """Return an order whose checkpoints, logs and code are in a directory of the node."""
    jobs = Path(home) / "jobs" / order.job
    order = replace(order, checkpoint_dir=str(jobs / "checkpoint"), log_dir=str(jobs / "logs"))
    if not order.code_snapshot:
        return order
    snapshot = Path(home) / code_snapshot_path(order)
    return replace(order, code_snapshot=str(snapshot), directory=str(code_dir(jobs)))


def code_snapshot_path(order: LaunchOrder) -> str:
    """Return the path of a job's code snapshot, relative to a home."""
    return f"jobs/{order.job}/{Path(order.code_snapshot).name}"


def checkpoint_path(job: str, name: str) -> str:
    """Return the path of a file of a job's checkpoint, relative to a home."""
    return f"jobs/{job}/checkpoint/{name}"


def checkpoint_files(order: LaunchOrder, steps: int) -> list[str]:
    """Return the files that the members of a part write for a checkpoint."""
    ranks = range(order.first_rank, order.first_rank + len(order.devices))
    return [f"{order.lease}-{steps}.{rank}.ckpt" for rank in ranks]


def files_to_restore(order: LaunchOrder, committed: CommittedCheckpoint) -> list[str]:
    """Return the files of a checkpoint that the members of a part start from."""
    ranks = range(order.first_rank, order.first_rank + len(order.devices))
    files = committed.files
    if len(files) != (order.world_size or len(order.devices)):
        return sorted(files)  # sharded tensors are resharded
    return [files[rank] for rank in ranks]


@dataclass
class NodeFiles:
    """One scheduler's files on this node."""

    home: Path
    _reported: dict[int, CheckpointSaved] = field(default_factory=dict)

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Return a chunk of a file; nothing beyond its end or if it does not exist."""
        try:
            with open(untrusted_file.open_regular(self._resolve(path)), "rb") as file:
                file.seek(offset)
                return file.read(size)
        except (FileNotFoundError, UnusableFileError):
            return b""

    def read_log(self, path: str, after: int, size: int) -> tuple[int, bytes]:
        """Return (offset, bytes) of a chunk of a log; see ``log_file.read``."""
        return log_file.read(self._resolve(path), after, size)

    def write(self, path: str, offset: int, chunk: bytes) -> None:
        """Write a chunk of a file; the chunk at offset 0 truncates it."""
        target = self._resolve(path)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = untrusted_file.open_regular(target, os.O_RDWR | os.O_CREAT, 0o600)
        with open(descriptor, "r+b") as file:
            if not offset:
                file.truncate()
            file.seek(offset)
            file.write(chunk)
            file.flush()
            os.fsync(file.fileno())

    def missing(self, job: str, names: Iterable[str]) -> list[str]:
        """Return the files of a checkpoint that are missing or damaged here."""
        return [
            name
            for name in names
            if not checkpoint.is_intact(str(self._resolve(checkpoint_path(job, name))))
        ]

    def install(self, job: str, lease: int, committed: CommittedCheckpoint | None) -> None:
        """Commit a checkpoint that was transferred here; see ``checkpoint.install``."""
        directory = str(self._resolve(checkpoint_path(job, "")))
        checkpoint.install(directory, lease, committed, wait_s=_LOCK_TIMEOUT_S)

    def remove_copy(self, job: str, lease: int) -> None:
        """Remove a checkpoint that was transferred away; see ``checkpoint.remove_copy``."""
        directory = str(self._resolve(checkpoint_path(job, "")))
        checkpoint.remove_copy(directory, lease, wait_s=_LOCK_TIMEOUT_S)

    def has_code(self, path: str) -> bool:
        """Return whether an intact code snapshot is here."""
        snapshot = self._resolve(path)
        try:
            with open(untrusted_file.open_regular(snapshot), "rb") as file:
                verify(file, snapshot.stem)
        except (FileNotFoundError, UnusableFileError):
            return False
        return True

    def remove_code(self, job: str, lease: int) -> None:
        """Remove a job's code after a lease, unless a later lease uses it."""
        home = self._resolve(f"jobs/{job}/checkpoint").parent
        if checkpoint.fence(str(home / "checkpoint")) > lease:
            return
        remove_code(home)
        for snapshot in home.glob(f"*{SUFFIX}"):
            snapshot.unlink(missing_ok=True)

    def mark_received(self, job: str, names: Collection[str]) -> None:
        """Show rank 0 that the server has these files, which members on other nodes wrote."""
        for name in names:
            path = self._resolve(checkpoint_path(job, name))
            os.close(untrusted_file.open_regular(path, os.O_WRONLY | os.O_CREAT))

    def new_checkpoint(self, order: LaunchOrder) -> CheckpointSaved | None:
        """Return the newest checkpoint of a part's members, None if it was returned before."""
        directory = Path(order.checkpoint_dir)
        name = re.compile(rf"{order.lease}-(\d{{1,15}})\.{order.first_rank}\.ckpt")
        entries = os.listdir(directory) if directory.is_dir() else ()
        steps = [int(match[1]) for entry in entries if (match := name.fullmatch(entry))]
        complete = [
            step
            for step in steps
            if all((directory / name).exists() for name in checkpoint_files(order, step))
        ]
        if not complete:
            return None
        try:
            latest = checkpoint.latest(order.checkpoint_dir)
        except UnusableFileError:  # the end of the lease reports it
            return None
        newest = max(complete)
        saved = CheckpointSaved(order.lease, newest, committed=False)
        if latest is not None and (latest.lease, latest.steps) == (order.lease, newest):
            is_first = order.first_rank == 0
            saved = replace(saved, committed=is_first, positions=latest.positions)
        if self._reported.get(order.lease) == saved:
            return None
        self._reported[order.lease] = saved
        return saved

    def report_again(self) -> None:
        """Make ``new_checkpoint`` return known checkpoints again: its caller has changed."""
        self._reported.clear()

    def _resolve(self, path: str) -> Path:
        parent, name = os.path.split(self.home / path)
        resolved = Path(parent).resolve() / name  # the name itself may be a job's link
        if name == ".." or not resolved.is_relative_to(self.home.resolve()):
            raise ValueError(f"{path} is outside {self.home}")
        return resolved
