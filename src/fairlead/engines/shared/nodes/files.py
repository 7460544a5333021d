"""A node's own files of a scheduler's jobs, where checkpoints are not in a shared directory.

The data directory is what counts: a checkpoint is in force when it is there, under the fence that
the server raises. Here are the node's copies, what members have saved and what was carried to
them; whoever carries (``ray_freight``, ``slurm_carrier``) asks for them by paths relative to the
scheduler's home on the node, which cannot lead out of it.
"""

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairlead.engines.base import Order
from fairlead.engines.keeper import log_file
from fairlead.job import checkpoint
from fairlead.job.checkpoint import Latest


@dataclass(frozen=True, slots=True)
class Saved:
    """The members of a part have all written their files of a checkpoint."""

    lease: int
    steps: int
    in_force: bool
    """rank 0, here, has put it in force"""


def with_node_paths(order: Order, home: str) -> Order:
    """Return an order whose checkpoints and logs are in a node's own directory."""
    jobs = Path(home) / "jobs" / order.job
    return replace(order, checkpoint_dir=str(jobs / "checkpoint"), log_dir=str(jobs / "logs"))


def checkpoint_path(job: str, name: str) -> str:
    """Return where a file of a job's checkpoint is, relative to a home."""
    return f"jobs/{job}/checkpoint/{name}"


def checkpoint_files(order: Order, steps: int) -> list[str]:
    """Return the files that the members of a part write for a checkpoint."""
    ranks = range(order.first_rank, order.first_rank + len(order.devices))
    return [f"{order.lease}-{steps}.{rank}.ckpt" for rank in ranks]


def files_to_restore(order: Order, found: Latest) -> list[str]:
    """Return the files of a checkpoint that the members of a part start from."""
    ranks = range(order.first_rank, order.first_rank + len(order.devices))
    return sorted({found.files[rank if rank < len(found.files) else 0] for rank in ranks})


@dataclass
class NodeFiles:
    """One scheduler's files on this node."""

    home: Path
    _told: dict[int, Saved] = field(default_factory=dict)

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Return a piece of a file, nothing behind its end or if there is none."""
        try:
            with self._inside(path).open("rb") as file:
                file.seek(offset)
                return file.read(size)
        except FileNotFoundError:
            return b""

    def read_log(self, path: str, after: int, size: int) -> tuple[int, bytes]:
        """Return a piece of a log and where in it that is; see ``log_file.read``."""
        return log_file.read(self._inside(path), after, size)

    def write(self, path: str, offset: int, piece: bytes) -> None:
        """Write a piece of a file, the first of which begins it anew."""
        inside = self._inside(path)
        inside.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with inside.open("r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(piece)
            file.flush()
            os.fsync(file.fileno())

    def missing(self, job: str, names: Iterable[str]) -> list[str]:
        """Return which of a checkpoint's files are not here, whole."""
        return [
            name
            for name in names
            if not checkpoint.is_intact(str(self._inside(checkpoint_path(job, name))))
        ]

    def install(self, job: str, lease: int, found: Latest | None) -> None:
        """Put a checkpoint in force that was carried here; see ``checkpoint.install``."""
        checkpoint.install(str(self._inside(checkpoint_path(job, ""))), lease, found)

    def empty(self, job: str, lease: int) -> None:
        """Remove what was carried away; see ``checkpoint.empty``."""
        checkpoint.empty(str(self._inside(checkpoint_path(job, ""))), lease)

    def mark(self, job: str, names: Collection[str]) -> None:
        """Let rank 0 know that members elsewhere have written, and the server has their files."""
        for name in names:
            self._inside(checkpoint_path(job, name)).touch()

    def saved(self, order: Order) -> Saved | None:
        """Return what the members of a part have saved since this was asked last."""
        where = Path(order.checkpoint_dir)
        steps = [
            int(path.name.partition("-")[2].partition(".")[0])
            for path in where.glob(f"{order.lease}-*.{order.first_rank}.ckpt")
        ]
        whole = [
            step
            for step in steps
            if all((where / name).exists() for name in checkpoint_files(order, step))
        ]
        if not whole:
            return None
        found = checkpoint.latest(order.checkpoint_dir)
        in_force = found is not None and (found.lease, found.steps) == (order.lease, max(whole))
        saved = Saved(order.lease, max(whole), in_force and order.first_rank == 0)
        if self._told.get(order.lease) == saved:
            return None
        self._told[order.lease] = saved
        return saved

    def forget(self) -> None:
        """Tell again what was told: somebody else listens."""
        self._told.clear()

    def _inside(self, path: str) -> Path:
        inside = (self.home / path).resolve()
        if not inside.is_relative_to(self.home.resolve()):
            raise ValueError(f"{path} is not in {self.home}")
        return inside
