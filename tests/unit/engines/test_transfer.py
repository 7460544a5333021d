"""Checkpoints reach the next node whole and only whole, by every way that engines carry them."""

import asyncio
import resource
import threading
import time
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path

import pytest

from fairlead.engines.base import Order
from fairlead.engines.keeper.log_file import LogFile, read_leases
from fairlead.engines.ray.leases import Watched, write
from fairlead.engines.ray.transfer import RayTransfer
from fairlead.engines.shared.multi_node import split
from fairlead.engines.shared.nodes.files import NodeFiles, with_node_paths
from fairlead.engines.slurm.transfer import CheckpointTransfer, copy
from fairlead.job import checkpoint


class Transport(ABC):
    """A data directory and the own ones of nodes *a* and *b*; one job's leases on them."""

    damages = 0
    """so many of the next transfers arrive damaged"""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.shared = str(root / "server/jobs/j1/checkpoint")
        self.transfers = 0

    def order(self, number: int, *devices: tuple[str, int]) -> Order:
        return Order(
            lease=number,
            job="j1",
            command=("true",),
            directory="/",
            devices=devices,
            accelerators=("v100",) * len(devices),
            checkpoint_dir=self.shared,
            log_dir=str(self.root / "server/jobs/j1/logs"),
        )

    def own(self, node: str) -> str:
        return str(self.root / node / "jobs/j1/checkpoint")

    def save(self, order: Order, steps: int) -> None:
        """Save as the members of a gang on one node do."""
        where = self.own(order.devices[0][0])
        for rank in range(len(order.devices)):
            checkpoint.write(where, order.lease, steps, rank, payload(rank))
        checkpoint.commit(where, order.lease, steps, len(order.devices))

    def in_force(self, directory: str) -> tuple[int, int] | None:
        found = checkpoint.latest(directory)
        return None if found is None else (found.lease, found.steps)

    def spoil(self) -> bool:
        """Tell whether the transfer that is under way arrives damaged."""
        self.transfers += 1
        self.damages -= 1
        return self.damages >= 0

    @abstractmethod
    def bring(self, order: Order) -> None:
        """Carry to the nodes of a lease what its members start from."""

    @abstractmethod
    def take(self, order: Order) -> None:
        """Carry to the data directory what members have saved since the last time."""


class ByRay(Transport):
    """In pieces, through actors that the server asks."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._shelves = {name: NodeFiles(root / name) for name in ("a", "b")}
        self._leases: dict[int, Watched] = {}
        self._freight = RayTransfer(self._ask, lambda node: str(root / node), piece=1000)

    async def _ask(self, node: str, method: str, *arguments: object) -> object:
        if method == "write":
            path, offset, piece = arguments
            assert isinstance(piece, bytes)
            if offset == 0 and self.spoil():
                arguments = (path, offset, b"?" + piece[1:])
        return await asyncio.to_thread(getattr(self._shelves[node], method), *arguments)

    def bring(self, order: Order) -> None:
        one = self._leases[order.lease] = write(self.root / str(order.lease), order)

        async def all_parts() -> None:
            for part in one.parts:
                await self._freight.bring(order, part)

        asyncio.run(all_parts())

    def take(self, order: Order) -> None:
        one = self._leases[order.lease]

        async def all_parts() -> None:
            for part in one.parts:
                saved = self._shelves[part.node].saved(part.order)
                if saved is not None:
                    await self._freight.take(one, part, saved)

        asyncio.run(all_parts())


class BySlurm(Transport):
    """As files, by the keepers."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._carriers: dict[int, list[CheckpointTransfer]] = {}

    def _copy(self, source: Path, target: Path) -> None:
        copy(source, target)
        if self.spoil():
            target.write_bytes(b"?" + target.read_bytes()[1:])

    def bring(self, order: Order) -> None:
        checkpoint.raise_fence(order.checkpoint_dir, order.lease)  # as every keeper does
        gang = split(order)
        self._carriers[order.lease] = made = [
            CheckpointTransfer(part, gang, self.root / part.devices[0][0], self._copy)
            for part in gang
        ]
        for carrier in made:
            carrier.bring()

    def take(self, order: Order) -> None:
        for carrier in self._carriers[order.lease]:
            carrier.look()


@pytest.fixture(params=[ByRay, BySlurm])
def transport(request: pytest.FixtureRequest, tmp_path: Path) -> Transport:
    made = request.param(tmp_path)
    assert isinstance(made, Transport)
    return made


def payload(rank: int) -> bytes:
    return bytes([rank]) * 12_345


def test_what_a_node_saved_is_in_force_on_the_next_one(transport: Transport) -> None:
    first = transport.order(1, ("a", 0))
    transport.bring(first)
    transport.save(first, 7)
    transport.take(first)
    assert transport.in_force(transport.shared) == (1, 7)
    transport.bring(transport.order(2, ("b", 0)))
    assert checkpoint.read(transport.own("b"), 0) == payload(0)
    assert not [path for path in Path(transport.own("b")).iterdir() if ".ckpt." in path.name]
    # Back on the first node nothing need be carried: what is there is whole.
    before = transport.transfers
    transport.bring(transport.order(3, ("a", 0)))
    assert transport.transfers == before
    assert checkpoint.read(transport.own("a"), 0) == payload(0)
    assert checkpoint.fence(transport.own("a")) == 3


def test_what_arrives_damaged_is_not_used(transport: Transport) -> None:
    first = transport.order(1, ("a", 0))
    transport.bring(first)
    transport.save(first, 7)
    transport.take(first)
    transport.damages = 3
    second = transport.order(2, ("b", 0))
    with pytest.raises(OSError, match="damaged"):
        transport.bring(second)
    assert transport.in_force(transport.own("b")) is None
    transport.damages = 0
    transport.bring(second)
    assert checkpoint.read(transport.own("b"), 0) == payload(0)


def test_what_is_damaged_where_it_was_saved_does_not_come_in_force(transport: Transport) -> None:
    one = transport.order(1, ("a", 0))
    transport.bring(one)
    transport.save(one, 7)
    transport.take(one)
    transport.save(one, 9)
    own = Path(transport.own("a"), "1-9.0.ckpt")
    own.write_bytes(own.read_bytes()[:-1] + b"?")
    try:
        transport.take(one)
    except OSError as error:
        assert "damaged" in str(error)  # noqa: PT017  # who carries may also only say so
    assert transport.in_force(transport.shared) == (1, 7)
    transport.save(one, 11)
    transport.take(one)
    assert transport.in_force(transport.shared) == (1, 11)


def test_a_node_that_was_given_up_saves_in_vain(transport: Transport) -> None:
    first = transport.order(1, ("a", 0))
    transport.bring(first)
    transport.save(first, 7)
    transport.take(first)
    second = transport.order(2, ("b", 0))
    transport.bring(second)
    transport.save(first, 50)  # it lives on and cannot know
    transport.take(first)
    assert transport.in_force(transport.shared) == (1, 7)
    transport.save(second, 8)
    transport.take(second)
    # Back there, what it saved in vain is no more in force.
    transport.bring(transport.order(3, ("a", 0)))
    assert transport.in_force(transport.own("a")) == (2, 8)
    with pytest.raises(checkpoint.FencedError):
        transport.bring(transport.order(2, ("a", 0)))


def test_a_job_without_a_checkpoint_does_not_start_from_a_stale_one(transport: Transport) -> None:
    first = transport.order(1, ("a", 0))
    transport.bring(first)
    transport.save(first, 7)  # it is never carried
    transport.bring(transport.order(2, ("a", 0)))
    assert transport.in_force(transport.own("a")) is None


def save_with_others(where: str, rank: int, done: list[object]) -> None:
    """Save once, as a member of a gang of three does."""
    checkpoint.write(where, 1, 5, rank, payload(rank))
    if rank == 0:
        checkpoint.commit(where, 1, 5, 3, wait_s=20.0)
        done.append("committed")
    else:
        done.append(checkpoint.wait_for_commit(where, 1, 5, wait_s=20.0))


def test_a_gang_over_nodes_saves_together(transport: Transport) -> None:
    one = transport.order(1, ("a", 0), ("b", 0), ("b", 1))
    transport.bring(one)
    done: list[object] = []
    members = [
        threading.Thread(target=save_with_others, args=(transport.own(node), rank, done))
        for rank, node in enumerate("abb")
    ]
    for member in members:
        member.start()
    while any(member.is_alive() for member in members):
        transport.take(one)
        time.sleep(0.02)
    transport.take(one)
    assert sorted(map(str, done)) == ["True", "True", "committed"]
    assert transport.in_force(transport.shared) == (1, 5)
    # All of it is in the data directory, and goes to wherever it is wanted next.
    for rank in range(3):
        assert checkpoint.read(transport.shared, rank) == payload(rank)
    transport.bring(transport.order(2, ("b", 0), ("b", 1), ("a", 0)))
    for rank, node in enumerate("bba"):
        assert checkpoint.read(transport.own(node), rank) == payload(rank)


def test_an_order_s_own_files_are_on_the_node(tmp_path: Path) -> None:
    own = with_node_paths(ByRay(tmp_path).order(1, ("a", 0)), "/home/of/a")
    assert own.checkpoint_dir == "/home/of/a/jobs/j1/checkpoint"
    assert own.log_dir == "/home/of/a/jobs/j1/logs"


def test_a_shelf_s_paths_do_not_lead_out_of_it(tmp_path: Path) -> None:
    shelf = NodeFiles(tmp_path / "home")
    for method, arguments in (("read", (0, 1)), ("write", (0, b"x"))):
        with pytest.raises(ValueError, match="is not in"):
            getattr(shelf, method)("../outside", *arguments)


class Prints:
    """A member on node *a* whose log is brought by Ray."""

    def __init__(self, root: Path) -> None:
        shelf = NodeFiles(root / "a")

        async def ask(_: str, method: str, *arguments: object) -> object:
            return getattr(shelf, method)(*arguments)

        self._freight = RayTransfer(ask, lambda node: str(root / node))
        self._one = write(root / "1", ByRay(root).order(1, ("a", 0)))
        (self._part,) = self._one.parts
        self.brought = Path(self._one.order.log_dir)
        self._own = Path(with_node_paths(self._part.order, str(root / "a")).log_dir, "1.0.log")
        self._own.parent.mkdir(parents=True)

    def say(self, *lines: str) -> None:
        """Print, into parts of 16 bytes."""
        with closing(LogFile(self._own, 16)) as log:
            for line in lines:
                log.write(line.encode())

    def bring(self) -> tuple[bytes, int]:
        """Return what the server has, and how far that reaches."""
        asyncio.run(self._freight.logs(self._one, self._part))
        return read_leases(self.brought, 0, 0, 1 << 20)

    def another_server(self) -> None:
        """Take the place of one that knew; this one knows only what it has on disk."""
        self._freight.forget(self._one)


def test_ray_brings_logs_as_they_grow_once_each(tmp_path: Path) -> None:
    member = Prints(tmp_path)
    assert member.bring() == (b"", 0)
    member.say("first\n")
    assert member.bring() == (b"first\n", 6)
    member.say("second\n")
    assert member.bring() == (b"first\nsecond\n", 13)
    member.another_server()
    assert member.bring() == (b"first\nsecond\n", 13)


def test_ray_brings_all_of_a_log_whose_oldest_parts_go_meanwhile(tmp_path: Path) -> None:
    member, said = Prints(tmp_path), ""
    for number in range(20):
        member.say(f"line {number:3d}\n", f"and {number:4d}\n")
        said += f"line {number:3d}\nand {number:4d}\n"
        assert member.bring() == (said.encode(), len(said))
        member.another_server()


def test_what_a_node_dropped_before_ray_brought_it_is_left_out_in_its_place(
    tmp_path: Path,
) -> None:
    member = Prints(tmp_path)
    member.say("first\n")
    member.bring()
    member.say(*(f"line {number:3d}\n" for number in range(20)))
    kept = "".join(f"line {number:3d}\n" for number in range(16, 20))
    assert member.bring() == (f"first\n{kept}".encode(), 6 + 20 * 9)
    member.another_server()
    member.say("last\n")
    assert member.bring() == (f"first\n{kept}last\n".encode(), 6 + 20 * 9 + 5)
    assert read_leases(member.brought, 0, 6 + 20 * 9, 1 << 20)[0] == b"last\n"


def test_a_server_without_room_for_a_log_brings_it_when_there_is_some(tmp_path: Path) -> None:
    member = Prints(tmp_path)
    member.say("first\n")
    member.bring()
    member.say("second\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        assert member.bring() == (b"first\nseco", 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert member.bring() == (b"first\nsecond\n", 13)
