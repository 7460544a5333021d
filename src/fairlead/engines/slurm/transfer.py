"""Transfer of checkpoints between a node's local disk and the data directory, for one part.

Members save to their node's local disk, which is fast and invisible to others. Their checkpoints
are transferred to the data directory in the background, and are committed once they are there,
under the fence that the server raises; before a lease starts on a node, the committed checkpoint
is transferred to it. Files contain their checksums, so a damaged copy is transferred again and
never used.
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

from fairlead.engines.base import LaunchOrder
from fairlead.engines.shared.nodes.files import (
    CheckpointSaved,
    NodeFiles,
    checkpoint_files,
    files_to_restore,
    with_node_paths,
)
from fairlead.job import checkpoint
from fairlead.job.committed import CommittedCheckpoint
from fairlead.untrusted_file import UnusableFileError

_POLL_S = 0.1
"""seconds between two searches for new checkpoints"""
_FENCE_POLL_S = 1.0
"""seconds between two checks of the fence"""
_TIMEOUT_S = 60.0
"""seconds that the last checkpoint may wait for the data directory"""
_MAX_TRIES = 3


class CorruptCheckpointError(OSError):
    """A checkpoint is damaged at its source, so that every copy is damaged."""


def copy(source: Path, target: Path) -> None:
    """Copy a file and flush it to disk."""
    with source.open("rb") as reading, target.open("wb") as writing:
        shutil.copyfileobj(reading, writing, 1 << 20)
        writing.flush()
        os.fsync(writing.fileno())


class CheckpointTransfer:
    """Transfers the checkpoints of one part's members in a background thread."""

    def __init__(
        self,
        part: LaunchOrder,
        gang: Sequence[LaunchOrder],
        home: Path,
        copy: Callable[[Path, Path], None] = copy,
    ) -> None:
        self._order = with_node_paths(part, str(home))
        self._gang = gang
        self._shared = Path(part.checkpoint_dir)
        self._files = NodeFiles(home)
        self._copy = copy
        self._uncommitted: int | None = None
        """steps of a local checkpoint that waits for the rest of the gang"""
        self._fence_checked_at = 0.0
        self._logged = ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def local_dir(self) -> str:
        """Checkpoint directory of the members on their node."""
        return self._order.checkpoint_dir

    def download(self) -> None:
        """Copy the committed checkpoint to the node, and fence earlier leases there.

        Raises FencedError if a later lease may write, CorruptCheckpointError if the committed
        checkpoint is damaged.
        """
        order = self._order
        try:
            latest = checkpoint.latest(str(self._shared))
        except UnusableFileError as error:
            raise CorruptCheckpointError(str(error)) from error
        if latest is not None:
            Path(self.local_dir).mkdir(parents=True, exist_ok=True, mode=0o700)
            for name in self._files.missing(order.job, files_to_restore(order, latest)):
                self._copy_verified(self._shared / name, Path(self.local_dir) / f"{name}.part")
        self._files.install(order.job, order.lease, latest)

    # -- while members run ----------------------------------------------------------------------

    def start(self) -> None:
        """Start the transfer of the members' checkpoints."""
        self._thread.start()

    def finish(self) -> None:
        """Request the thread's exit after the last checkpoint: the members have ended."""
        self._ending.set()

    def is_busy(self) -> bool:
        """Return whether a transfer may still be in progress."""
        return self._thread.is_alive()

    def _run(self) -> None:
        failing_since: float | None = None
        while True:
            last, now = self._ending.is_set(), time.monotonic()
            try:
                self.transfer_new()
                if last:
                    self._files.remove_copy(self._order.job, self._order.lease)
                    return
                failing_since = None
            except OSError as error:
                self._log_once(str(error))
                failing_since = failing_since or now
                if last and now - failing_since > _TIMEOUT_S:
                    return
                time.sleep(_POLL_S)
            self._ending.wait(_POLL_S)

    def transfer_new(self) -> None:
        """Upload new checkpoints, and synchronise the members with the rest of their gang."""
        now = time.monotonic()
        if now - self._fence_checked_at >= _FENCE_POLL_S or self._ending.is_set():
            self._fence_checked_at = now
            if self._apply_fence():
                return
        saved = self._files.new_checkpoint(self._order)
        if saved is not None:
            try:
                self._upload(saved)
            except CorruptCheckpointError as error:  # the committed one stays until the next
                self._log_once(str(error))
            except OSError:
                self._files.report_again()
                raise
        if self._uncommitted is not None:
            self._sync_gang(self._uncommitted)

    def _upload(self, saved: CheckpointSaved) -> None:
        order, alone = self._order, len(self._gang) == 1
        if alone and not saved.committed:
            return
        for name in checkpoint_files(order, saved.steps):
            target = self._shared / f"{name}.part"
            if not target.exists():
                self._copy_verified(Path(self.local_dir) / name, target)
        self._uncommitted = None if saved.committed else saved.steps
        if saved.committed:
            names = tuple(self._gang_files(saved.steps))
            committed = CommittedCheckpoint(
                order.lease, saved.steps, names, positions=saved.positions
            )
            try:
                checkpoint.install(str(self._shared), order.lease, committed)
            except checkpoint.FencedError:
                self._apply_fence()

    def _sync_gang(self, steps: int) -> None:
        """Show rank 0 that all members have saved, and show the others its commit."""
        order = self._order
        if order.first_rank == 0:
            names = self._gang_files(steps)
            if all((self._shared / f"{name}.part").exists() for name in names):
                self._files.mark_received(order.job, names)
                self._uncommitted = None
            return
        latest = checkpoint.latest(str(self._shared))
        if latest is not None and (latest.lease, latest.steps) == (order.lease, steps):
            self._files.install(order.job, order.lease, latest)
            self._uncommitted = None

    def _gang_files(self, steps: int) -> list[str]:
        return [name for part in self._gang for name in checkpoint_files(part, steps)]

    def _apply_fence(self) -> bool:
        """Raise the local fence to that of the data directory; return whether it shuts us out."""
        fence = checkpoint.fence(str(self._shared))
        if fence <= self._order.lease:
            return False
        with suppress(checkpoint.FencedError):
            checkpoint.raise_fence(self.local_dir, fence)
        return True

    def _copy_verified(self, source: Path, target: Path) -> None:
        """Copy a file, retrying damaged copies; only an intact one gets its name."""
        aside = target.with_suffix(".coming")
        for _ in range(_MAX_TRIES):
            self._copy(source, aside)
            if checkpoint.is_intact(str(aside)):
                aside.replace(target)
                return
        if not checkpoint.is_intact(str(source)):
            raise CorruptCheckpointError(f"checkpoint {source} is damaged: checksum mismatch")
        problem = f"checkpoint {source} arrived damaged {_MAX_TRIES} times"
        raise OSError(errno.EIO, problem, str(target.parent))

    def _log_once(self, message: str) -> None:
        """Write a message to the keeper's log unless it was the last one."""
        if message != self._logged:
            self._logged = message
            sys.stderr.write(f"fairlead: {message}\n")
            sys.stderr.flush()
