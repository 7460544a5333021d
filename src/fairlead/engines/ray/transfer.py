"""Carries checkpoints and logs between the server and nodes that share no directory with it.

The server's own data directory is what counts: a checkpoint is in force when it is there, under
the fence that the server raises. It travels in pieces through Ray's object store: to a node before
a lease starts there, and from it as soon as the members have saved. Files name their checksums, so
what arrives damaged is carried again and never used.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from fairlead.engines.base import Order
from fairlead.engines.keeper.log_file import LogFile, end_of
from fairlead.engines.ray.leases import Part, Watched
from fairlead.engines.shared.nodes.files import (
    Saved,
    checkpoint_files,
    checkpoint_path,
    files_to_restore,
    with_node_paths,
)
from fairlead.job import checkpoint
from fairlead.job.checkpoint import Latest

log = structlog.get_logger("fairlead.ray")

CHUNK_BYTES = 32 << 20
_LOG_CHUNK_BYTES = 1 << 20

Ask = Callable[..., Awaitable[object]]
"""(node's name, method of its warden, arguments) → its answer"""


@dataclass
class RayTransfer:
    """All that travels for one scheduler."""

    ask: Ask
    home: Callable[[str], str]
    piece: int = CHUNK_BYTES
    _logs: dict[tuple[int, int], int] = field(default_factory=dict)
    """(lease, rank) → how much of its log we have"""

    # -- to a node ------------------------------------------------------------------------------

    async def bring(self, order: Order, part: Part) -> None:
        """Have on a node what the members there are to start from, and let only them write."""
        checkpoint.raise_fence(order.checkpoint_dir, order.lease)
        found, node = checkpoint.latest(order.checkpoint_dir), part.node
        if found is not None:
            wanted = files_to_restore(part.order, found)
            missing = await self.ask(node, "missing", order.job, wanted)
            assert isinstance(missing, list)
            for name in missing:
                source = Path(order.checkpoint_dir) / name
                await self._send(source, node, checkpoint_path(order.job, name + ".part"))
        await self.ask(node, "install", order.job, order.lease, found)
        part.order = with_node_paths(part.order, self.home(node))

    async def _send(self, source: Path, node: str, path: str) -> None:
        offset = 0
        while True:
            piece = await asyncio.to_thread(_read, source, offset, self.piece)
            if offset and not piece:
                return
            await self.ask(node, "write", path, offset, piece)
            offset += len(piece)

    # -- from a node ----------------------------------------------------------------------------

    async def take(self, one: Watched, part: Part, saved: Saved) -> None:
        """Have here what the members of a part have saved, in force once all have."""
        order, parts = one.order, one.parts
        names = checkpoint_files(part.order, saved.steps)
        if len(parts) > 1 or saved.in_force:
            for name in names:
                await self._fetch(order, part.node, name)
        gang = [name for each in parts for name in checkpoint_files(each.order, saved.steps)]
        if saved.in_force:
            found = Latest(order.lease, saved.steps, tuple(gang))
            try:
                await asyncio.to_thread(
                    checkpoint.install, order.checkpoint_dir, order.lease, found
                )
            except checkpoint.FencedError as error:
                log.warning("ray.checkpoint-refused", lease=order.lease, why=str(error))
                return
            for other in parts:
                if other is not part and other.ended is None:
                    await self.ask(other.node, "install", order.job, order.lease, found)
        elif len(parts) > 1 and self._has_all(order, gang):
            await self.ask(parts[0].node, "mark", order.job, gang)

    async def clear(self, order: Order, node: str) -> None:
        """Remove from a node what a lease that has ended saved there: it is here."""
        await self.ask(node, "empty", order.job, order.lease)

    def _has_all(self, order: Order, names: list[str]) -> bool:
        return all(Path(order.checkpoint_dir, f"{name}.part").exists() for name in names)

    async def _fetch(self, order: Order, node: str, name: str) -> None:
        """Have a file here, aside; only ``checkpoint.install`` gives it its name."""
        target = Path(order.checkpoint_dir) / f"{name}.part"
        if target.exists():
            return
        offset, aside = 0, target.with_suffix(".coming")
        while True:
            piece = await self.ask(
                node, "read", checkpoint_path(order.job, name), offset, self.piece
            )
            assert isinstance(piece, bytes)
            if offset and not piece:
                break
            await asyncio.to_thread(_write, aside, offset, piece)
            offset += len(piece)
            if not piece:
                break
        if not await asyncio.to_thread(checkpoint.is_intact, str(aside)):
            raise OSError(f"checkpoint {name} arrived damaged from {node}")
        aside.replace(target)

    # -- logs -----------------------------------------------------------------------------------

    async def logs(self, one: Watched, part: Part) -> None:
        """Have here what the members of a part have printed so far."""
        order = one.order
        for index in range(len(part.order.devices)):
            rank = part.order.first_rank + index
            name = f"{order.lease}.{rank}.log"
            target = Path(order.log_dir) / name
            known = self._logs.get((order.lease, rank))
            if known is None:
                known = await asyncio.to_thread(end_of, target)
            path, whole = f"jobs/{order.job}/logs/{name}", True
            while whole:
                found = await self.ask(part.node, "read_log", path, known, _LOG_CHUNK_BYTES)
                assert isinstance(found, tuple)
                at, piece = found
                if not piece:
                    break
                known = await asyncio.to_thread(_append, target, at, piece)
                whole = known == at + len(piece)
            self._logs[order.lease, rank] = known

    def forget(self, one: Watched) -> None:
        """Drop what is known of a lease that has ended."""
        for rank in range(len(one.order.devices)):
            self._logs.pop((one.lease, rank), None)


def _read(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


def _write(path: Path, offset: int, piece: bytes) -> None:
    with path.open("r+b" if offset else "wb") as file:
        file.seek(offset)
        file.write(piece)


def _append(path: Path, at: int, piece: bytes) -> int:
    """Add to our copy of a log; return its end, from where to go on if there was no room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    log_file = LogFile(path)
    try:
        log_file.write(piece, at)
        return log_file.end
    finally:
        log_file.close()
