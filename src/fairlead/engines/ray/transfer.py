"""Transfer of checkpoints and logs between the server and nodes without a shared directory.

The server's data directory is authoritative: a checkpoint is committed once it is there, under the
fence that the server raises. Files travel in chunks through Ray's object store: to a node before a
lease starts there, and back as soon as the members have saved. Files contain their checksums, so a
damaged copy is transferred again and never used.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from fairlead import untrusted_file
from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper.log_file import LogFile, end_of
from fairlead.engines.ray.leases import RayLeasePart, TrackedRayLease
from fairlead.engines.shared.nodes.files import (
    CheckpointSaved,
    checkpoint_files,
    checkpoint_path,
    code_snapshot_path,
    files_to_restore,
    with_node_paths,
)
from fairlead.job import checkpoint
from fairlead.job.committed import CommittedCheckpoint

log = structlog.get_logger("fairlead.ray")

CHUNK_BYTES = 32 << 20
_LOG_CHUNK_BYTES = 1 << 20
_MAX_LOG_CHUNKS = 16
"""chunks of a log that are copied at a time: endless output must not delay anything else"""

CallNodeFiles = Callable[..., Awaitable[object]]
"""(name of a node, method of its ``NodeFiles``, arguments) → the result"""


@dataclass
class RayTransfer:
    """Transfers the checkpoints and logs of one scheduler's leases."""

    node_files: CallNodeFiles
    home: Callable[[str], str]
    """node → the scheduler's home there"""
    chunk_bytes: int = CHUNK_BYTES
    _logs: dict[tuple[int, int], int] = field(default_factory=dict)
    """(lease, rank) → bytes of its log that the server has"""

    # -- to a node ------------------------------------------------------------------------------

    async def upload(self, order: LaunchOrder, part: RayLeasePart) -> None:
        """Copy the committed checkpoint to a part's node, and fence earlier leases there."""
        await asyncio.to_thread(checkpoint.raise_fence, order.checkpoint_dir, order.lease)
        latest, node = checkpoint.latest(order.checkpoint_dir), part.node
        if latest is not None:
            names = files_to_restore(part.order, latest)
            missing = await self.node_files(node, "missing", order.job, names)
            assert isinstance(missing, list)
            for name in missing:
                source = Path(order.checkpoint_dir) / name
                await self._send(source, node, checkpoint_path(order.job, name + ".part"))
        await self.node_files(node, "install", order.job, order.lease, latest)
        if order.code_snapshot:
            await self._send_code(order, node)
        part.order = with_node_paths(part.order, self.home(node))

    async def _send_code(self, order: LaunchOrder, node: str) -> None:
        """Copy a job's code snapshot to a node, unless it is there."""
        path = code_snapshot_path(order)
        if await self.node_files(node, "has_code", path):
            return
        await self._send(Path(order.code_snapshot), node, path)
        if not await self.node_files(node, "has_code", path):
            raise OSError(f"the code snapshot of job {order.job} arrived damaged on {node}")

    async def _send(self, source: Path, node: str, path: str) -> None:
        offset = 0
        while True:
            chunk = await asyncio.to_thread(_read, source, offset, self.chunk_bytes)
            if offset and not chunk:
                return
            await self.node_files(node, "write", path, offset, chunk)
            offset += len(chunk)

    # -- from a node ----------------------------------------------------------------------------

    async def download_checkpoint(
        self, lease: TrackedRayLease, part: RayLeasePart, saved: CheckpointSaved
    ) -> None:
        """Copy a part's checkpoint files to the server; commit it once all parts have saved."""
        order, parts = lease.order, lease.parts
        names = checkpoint_files(part.order, saved.steps)
        if len(parts) > 1 or saved.committed:
            for name in names:
                if not await self._fetch(order, part.node, name):
                    why = f"checkpoint {name} is damaged on {part.node}"
                    log.warning("ray.checkpoint-refused", lease=order.lease, why=why)
                    return
        gang = [name for each in parts for name in checkpoint_files(each.order, saved.steps)]
        if saved.committed:
            latest = CommittedCheckpoint(
                order.lease, saved.steps, tuple(gang), positions=saved.positions
            )
            try:
                await asyncio.to_thread(
                    checkpoint.install, order.checkpoint_dir, order.lease, latest
                )
            except checkpoint.FencedError as error:
                log.warning("ray.checkpoint-refused", lease=order.lease, why=str(error))
                return
            for other in parts:
                if other is not part and other.ended is None:
                    await self.node_files(other.node, "install", order.job, order.lease, latest)
        elif len(parts) > 1 and self._has_all(order, gang):
            await self.node_files(parts[0].node, "mark_received", order.job, gang)

    async def remove_from_node(self, order: LaunchOrder, node: str) -> None:
        """Remove the checkpoint files of an ended lease from a node: the server has them."""
        await self.node_files(node, "remove_copy", order.job, order.lease)
        if order.code_snapshot:
            await self.node_files(node, "remove_code", order.job, order.lease)

    def _has_all(self, order: LaunchOrder, names: list[str]) -> bool:
        return all(Path(order.checkpoint_dir, f"{name}.part").exists() for name in names)

    async def _fetch(self, order: LaunchOrder, node: str, name: str) -> bool:
        """Copy a file to a temporary name; ``checkpoint.install`` gives it its final one.

        Return False if the file is damaged on the node; raise OSError if the copy is.
        """
        target = Path(order.checkpoint_dir) / f"{name}.part"
        if target.exists():
            return True
        offset, aside = 0, target.with_suffix(".coming")
        while True:
            chunk = await self.node_files(
                node, "read", checkpoint_path(order.job, name), offset, self.chunk_bytes
            )
            assert isinstance(chunk, bytes)
            if offset and not chunk:
                break
            await asyncio.to_thread(_write, aside, offset, chunk)
            offset += len(chunk)
            if not chunk:
                break
        if not await asyncio.to_thread(checkpoint.is_intact, str(aside)):
            if await self.node_files(node, "missing", order.job, [name]):
                return False
            raise OSError(f"checkpoint {name} from {node} arrived damaged")
        aside.replace(target)
        return True

    # -- logs -----------------------------------------------------------------------------------

    async def download_logs(
        self, lease: TrackedRayLease, part: RayLeasePart, *, has_ended: bool = True
    ) -> None:
        """Append the new output of a part's members to the server's copies of their logs."""
        order = lease.order
        for index in range(len(part.order.devices)):
            rank = part.order.first_rank + index
            name = f"{order.lease}.{rank}.log"
            target = Path(order.log_dir) / name
            known = self._logs.get((order.lease, rank))
            if known is None:
                known = await asyncio.to_thread(end_of, target)
            path, whole, chunks = f"jobs/{order.job}/logs/{name}", True, 0
            while whole and (has_ended or chunks < _MAX_LOG_CHUNKS):
                chunks += 1
                answer = await self.node_files(
                    part.node, "read_log", path, known, _LOG_CHUNK_BYTES
                )
                assert isinstance(answer, tuple)
                at, chunk = answer
                if not chunk:
                    break
                known = await asyncio.to_thread(_append, target, at, chunk)
                whole = known == at + len(chunk)
            self._logs[order.lease, rank] = known

    def forget(self, lease: TrackedRayLease) -> None:
        """Drop the log positions of an ended lease."""
        for rank in range(len(lease.order.devices)):
            self._logs.pop((lease.lease, rank), None)


def _read(path: Path, offset: int, size: int) -> bytes:
    with open(untrusted_file.open_regular(path), "rb") as file:
        file.seek(offset)
        return file.read(size)


def _write(path: Path, offset: int, chunk: bytes) -> None:
    descriptor = untrusted_file.open_regular(path, os.O_RDWR | os.O_CREAT)
    with open(descriptor, "r+b") as file:
        if not offset:
            file.truncate()
        file.seek(offset)
        file.write(chunk)


def _append(path: Path, at: int, chunk: bytes) -> int:
    """Append to the server's copy of a log; return its end, earlier if the disk was full."""
    path.parent.mkdir(parents=True, exist_ok=True)
    log_file = LogFile(path)
    try:
        log_file.write(chunk, at)
        return log_file.end
    finally:
        log_file.close()
