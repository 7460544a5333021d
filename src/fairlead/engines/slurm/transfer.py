"""Carries checkpoints between a node's own disk and the data directory, for one part of a lease.

Members save to their node's own disk, which is fast and which nobody else sees. What they saved is
carried to the data directory meanwhile, and is in force once it is there, under the fence that the
server raises; before a lease starts on a node, what is in force is carried to it. Files name their
checksums, so what arrives damaged is carried again and never used.
"""

import errno
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from fairlead.engines.base import Order
from fairlead.engines.shared.nodes.files import (
    NodeFiles,
    Saved,
    checkpoint_files,
    files_to_restore,
    with_node_paths,
)
from fairlead.job import checkpoint
from fairlead.job.checkpoint import Latest

_LOOK_S = 0.1
"""how often to look for what members have saved"""
_FENCE_S = 1.0
"""how often to look whether a later lease may write"""
_PATIENCE_S = 60.0
"""how long the last checkpoint may wait for the data directory"""
_TRIES = 3


class DamagedError(OSError):
    """A checkpoint is damaged where it lies, so that no copy of it can be whole."""


def copy(source: Path, target: Path) -> None:
    """Copy a file, flushed to disk."""
    with source.open("rb") as reading, target.open("wb") as writing:
        shutil.copyfileobj(reading, writing, 1 << 20)
        writing.flush()
        os.fsync(writing.fileno())


class CheckpointTransfer:
    """What travels for the members of one part; looks for it in a thread of its own."""

    def __init__(
        self,
        part: Order,
        gang: Sequence[Order],
        home: Path,
        copy: Callable[[Path, Path], None] = copy,
    ) -> None:
        self._order = with_node_paths(part, str(home))
        self._gang = gang
        self._shared = Path(part.checkpoint_dir)
        self._shelf = NodeFiles(home)
        self._copy = copy
        self._waits: int | None = None
        """steps that are saved here and not yet in force, for the rest of the gang is to save"""
        self._fence_at = 0.0
        self._said = ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def own(self) -> str:
        """Where members save."""
        return self._order.checkpoint_dir

    def bring(self) -> None:
        """Have here what the members are to start from, and let only them write.

        Raises FencedError if a later lease may write, DamagedError if what is in force is damaged.
        """
        order = self._order
        found = checkpoint.latest(str(self._shared))
        if found is not None:
            Path(self.own).mkdir(parents=True, exist_ok=True, mode=0o700)
            for name in self._shelf.missing(order.job, files_to_restore(order, found)):
                self._copy_verified(self._shared / name, Path(self.own) / f"{name}.part")
        self._shelf.install(order.job, order.lease, found)

    # -- while members run ----------------------------------------------------------------------

    def begin(self) -> None:
        """Carry from now on what members save."""
        self._thread.start()

    def end(self) -> None:
        """Let it end once all is carried: members save no more."""
        self._ending.set()

    def is_busy(self) -> bool:
        """Tell whether something may still be on its way."""
        return self._thread.is_alive()

    def _run(self) -> None:
        failing_since: float | None = None
        while True:
            last, now = self._ending.is_set(), time.monotonic()
            try:
                self.look()
                if last:
                    self._shelf.empty(self._order.job, self._order.lease)
                    return
                failing_since = None
            except OSError as error:
                self._say(str(error))
                failing_since = failing_since or now
                if last and now - failing_since > _PATIENCE_S:
                    return
                time.sleep(_LOOK_S)
            self._ending.wait(_LOOK_S)

    def look(self) -> None:
        """Carry what members have saved since, and tell them of the rest of their gang."""
        now = time.monotonic()
        if now - self._fence_at >= _FENCE_S or self._ending.is_set():
            self._fence_at = now
            if self._apply_fence():
                return
        saved = self._shelf.saved(self._order)
        if saved is not None:
            try:
                self._take(saved)
            except DamagedError as error:  # what is in force stays so, until the next is saved
                self._say(str(error))
            except OSError:
                self._shelf.forget()
                raise
        if self._waits is not None:
            self._meet(self._waits)

    def _take(self, saved: Saved) -> None:
        order, alone = self._order, len(self._gang) == 1
        if alone and not saved.in_force:
            return
        for name in checkpoint_files(order, saved.steps):
            target = self._shared / f"{name}.part"
            if not target.exists():
                self._copy_verified(Path(self.own) / name, target)
        self._waits = None if saved.in_force else saved.steps
        if saved.in_force:
            found = Latest(order.lease, saved.steps, tuple(self._all_names(saved.steps)))
            try:
                checkpoint.install(str(self._shared), order.lease, found)
            except checkpoint.FencedError:
                self._apply_fence()

    def _meet(self, steps: int) -> None:
        """Let rank 0 know that all have saved, and the others that it has put that in force."""
        order = self._order
        if order.first_rank == 0:
            names = self._all_names(steps)
            if all((self._shared / f"{name}.part").exists() for name in names):
                self._shelf.mark(order.job, names)
                self._waits = None
            return
        found = checkpoint.latest(str(self._shared))
        if found is not None and (found.lease, found.steps) == (order.lease, steps):
            self._shelf.install(order.job, order.lease, found)
            self._waits = None

    def _all_names(self, steps: int) -> list[str]:
        return [name for part in self._gang for name in checkpoint_files(part, steps)]

    def _apply_fence(self) -> bool:
        """Refuse members here what they would be refused in the data directory."""
        fence = checkpoint.fence(str(self._shared))
        if fence <= self._order.lease:
            return False
        with suppress(checkpoint.FencedError):
            checkpoint.raise_fence(self.own, fence)
        return True

    def _copy_verified(self, source: Path, target: Path) -> None:
        """Copy a file, again if it arrives damaged; only a whole one gets its name."""
        aside = target.with_suffix(".coming")
        for _ in range(_TRIES):
            self._copy(source, aside)
            if checkpoint.is_intact(str(aside)):
                aside.replace(target)
                return
        if not checkpoint.is_intact(str(source)):
            raise DamagedError(f"checkpoint {source} is damaged: its checksum does not match")
        said = f"checkpoint {source} arrived damaged {_TRIES} times"
        raise OSError(errno.EIO, said, str(target.parent))

    def _say(self, what: str) -> None:
        """Leave word in the keeper's log, once."""
        if what != self._said:
            self._said = what
            sys.stderr.write(f"fairlead: {what}\n")
            sys.stderr.flush()
