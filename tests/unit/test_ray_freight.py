"""Checkpoints and logs reach the next node whole, through nothing that nodes share."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.engines.base import Order
from fairlead.engines.ray_freight import Freight
from fairlead.engines.ray_leases import Watched, write
from fairlead.engines.ray_shelf import Shelf, with_own_files
from fairlead.job import checkpoint


class Apart:
    """A server's directory and two nodes' own ones, between which only pieces of files travel."""

    def __init__(self, root: Path, piece: int = 1000) -> None:
        self.root = root
        self.shelves = {name: Shelf(root / name) for name in ("a", "b")}
        self.asked: list[tuple[str, str]] = []
        self.freight = Freight(self._ask, lambda node: str(root / node), piece)
        self.damage = False

    async def _ask(self, node: str, method: str, *arguments: object) -> object:
        self.asked.append((node, method))
        if method == "write" and self.damage:
            path, offset, piece = arguments
            assert isinstance(piece, bytes)
            arguments = (path, offset, piece[:-1] + b"?")
        return await asyncio.to_thread(getattr(self.shelves[node], method), *arguments)

    def lease(self, number: int, *devices: tuple[str, int]) -> Watched:
        """Return a lease that is about to start."""
        order = Order(
            lease=number,
            job="j1",
            command=("true",),
            directory="/",
            devices=devices,
            accelerators=("v100",) * len(devices),
            checkpoint_dir=str(self.root / "server/jobs/j1/checkpoint"),
            log_dir=str(self.root / "server/jobs/j1/logs"),
        )
        return write(self.root / "server/leases" / str(number), order)

    async def bring(self, one: Watched) -> None:
        for part in one.parts:
            await self.freight.bring(one.order, part)

    async def take(self, one: Watched) -> None:
        """Carry what members have saved since the last time."""
        for part in one.parts:
            saved = self.shelves[part.node].saved(part.order)
            if saved is not None:
                await self.freight.take(one, part, saved)


def payload(rank: int) -> bytes:
    return bytes([rank]) * 12_345


def save(one: Watched, steps: int) -> None:
    """Save as the members of a gang on one node do."""
    order = one.parts[0].order
    for rank in range(len(order.devices)):
        checkpoint.write(order.checkpoint_dir, order.lease, steps, rank, payload(rank))
    checkpoint.commit(order.checkpoint_dir, order.lease, steps, len(order.devices))


def test_what_a_node_saved_is_in_force_on_the_next_one(tmp_path: Path) -> None:
    apart = Apart(tmp_path)

    async def scene() -> None:
        first = apart.lease(1, ("a", 0))
        await apart.bring(first)
        save(first, 7)
        await apart.take(first)
        found = checkpoint.latest(first.order.checkpoint_dir)
        assert found is not None
        assert (found.lease, found.steps) == (1, 7)
        second = apart.lease(2, ("b", 0))
        await apart.bring(second)
        there = second.parts[0].order.checkpoint_dir
        assert there == str(tmp_path / "b/jobs/j1/checkpoint")
        assert checkpoint.read(there, 0) == payload(0)
        assert not list(Path(there).glob("*.part"))
        # Back on the first node nothing need be carried: what is there is whole.
        apart.asked.clear()
        await apart.bring(apart.lease(3, ("a", 0)))
        assert ("a", "write") not in apart.asked
        assert checkpoint.fence(str(tmp_path / "a/jobs/j1/checkpoint")) == 3

    asyncio.run(scene())


def test_what_arrives_damaged_is_not_used(tmp_path: Path) -> None:
    apart = Apart(tmp_path)

    async def scene() -> None:
        first = apart.lease(1, ("a", 0))
        await apart.bring(first)
        save(first, 7)
        await apart.take(first)
        apart.damage = True
        second = apart.lease(2, ("b", 0))
        with pytest.raises(OSError, match="damaged"):
            await apart.bring(second)
        assert checkpoint.latest(str(tmp_path / "b/jobs/j1/checkpoint")) is None
        apart.damage = False
        await apart.bring(second)
        assert checkpoint.read(second.parts[0].order.checkpoint_dir, 0) == payload(0)
        # Damaged where it was saved: what was in force stays in force.
        save(second, 9)
        own = tmp_path / "b/jobs/j1/checkpoint/2-9.0.ckpt"
        own.write_bytes(own.read_bytes()[:-1] + b"?")
        with pytest.raises(OSError, match="damaged"):
            await apart.take(second)
        found = checkpoint.latest(second.order.checkpoint_dir)
        assert found is not None
        assert found.steps == 7

    asyncio.run(scene())


def test_a_node_that_was_given_up_saves_in_vain(tmp_path: Path) -> None:
    apart = Apart(tmp_path)

    async def scene() -> None:
        first = apart.lease(1, ("a", 0))
        await apart.bring(first)
        save(first, 7)
        await apart.take(first)
        first.give_up(first.parts[0], "lost", "cut off")
        second = apart.lease(2, ("b", 0))
        await apart.bring(second)
        save(first, 50)  # it lives on and cannot know
        first.parts[0].ended = None
        await apart.take(first)
        found = checkpoint.latest(first.order.checkpoint_dir)
        assert found is not None
        assert (found.lease, found.steps) == (1, 7)
        save(second, 8)
        await apart.take(second)
        # Back there, what it saved in vain is no more in force.
        third = apart.lease(3, ("a", 0))
        await apart.bring(third)
        found = checkpoint.latest(third.parts[0].order.checkpoint_dir)
        assert found is not None
        assert (found.lease, found.steps) == (2, 8)
        late = apart.lease(2, ("a", 0))
        with pytest.raises(checkpoint.FencedError):
            await apart.bring(late)

    asyncio.run(scene())


def test_a_job_without_a_checkpoint_does_not_start_from_a_stale_one(tmp_path: Path) -> None:
    apart = Apart(tmp_path)

    async def scene() -> None:
        first = apart.lease(1, ("a", 0))
        await apart.bring(first)
        save(first, 7)  # the server never hears of it
        second = apart.lease(2, ("a", 0))
        await apart.bring(second)
        assert checkpoint.latest(second.parts[0].order.checkpoint_dir) is None

    asyncio.run(scene())


def test_a_gang_over_nodes_that_share_nothing_saves_together(tmp_path: Path) -> None:
    apart = Apart(tmp_path)
    ends: list[object] = []

    def member(where: str, rank: int) -> None:
        checkpoint.write(where, 1, 5, rank, payload(rank))
        if rank == 0:
            checkpoint.commit(where, 1, 5, 3, wait_s=20.0)
            ends.append("committed")
        else:
            ends.append(checkpoint.await_commit(where, 1, 5, wait_s=20.0))

    async def scene() -> None:
        one = apart.lease(1, ("a", 0), ("b", 0), ("b", 1))
        await apart.bring(one)
        homes = [one.parts[0].order, *(one.parts[1].order,) * 2]
        threads = [
            threading.Thread(target=member, args=(order.checkpoint_dir, rank))
            for rank, order in enumerate(homes)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            await apart.take(one)
            await asyncio.sleep(0.02)
        await apart.take(one)
        assert sorted(map(str, ends)) == ["True", "True", "committed"]
        found = checkpoint.latest(one.order.checkpoint_dir)
        assert found is not None
        assert (found.steps, len(found.files)) == (5, 3)
        # All of it is with the server, and goes to wherever it is wanted next.
        for rank in range(3):
            assert checkpoint.read(one.order.checkpoint_dir, rank) == payload(rank)
        other = apart.lease(2, ("b", 0), ("b", 1), ("a", 0))
        await apart.bring(other)
        for rank, node in enumerate(("b", "b", "a")):
            where = str(tmp_path / node / "jobs/j1/checkpoint")
            assert checkpoint.read(where, rank) == payload(rank)

    asyncio.run(scene())


def test_logs_are_brought_as_they_grow_once_each(tmp_path: Path) -> None:
    apart = Apart(tmp_path)

    async def scene() -> None:
        one = apart.lease(1, ("a", 0))
        part = one.parts[0]
        part.order = with_own_files(part.order, str(tmp_path / "a"))
        own = Path(part.order.log_dir)
        own.mkdir(parents=True)
        for line in ("first\n", "second\n"):
            with (own / "1.0.log").open("a") as file:
                file.write(line)
            await apart.freight.logs(one, part)
        apart.freight.forget(one)  # a new server knows only what it has
        await apart.freight.logs(one, part)
        assert Path(one.order.log_dir, "1.0.log").read_text() == "first\nsecond\n"

    asyncio.run(scene())


def test_a_shelf_s_paths_do_not_lead_out_of_it(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "home")
    for method, arguments in (("read", (0, 1)), ("write", (0, b"x"))):
        with pytest.raises(ValueError, match="is not in"):
            getattr(shelf, method)("../outside", *arguments)


def test_an_order_s_own_files_are_on_the_node(tmp_path: Path) -> None:
    order = Apart(tmp_path).lease(1, ("a", 0)).order
    own = with_own_files(order, "/home/of/a")
    assert own == replace(
        order,
        checkpoint_dir="/home/of/a/jobs/j1/checkpoint",
        log_dir="/home/of/a/jobs/j1/logs",
    )
