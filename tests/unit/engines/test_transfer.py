"""Checkpoints reach the next node intact or not at all, with every engine's transfer."""

import asyncio
import resource
import threading
import time
from abc import ABC, abstractmethod
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.code_snapshot.packing import pack
from fairlead.code_snapshot.unpacking import unpack
from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper.log_file import LogFile, read_leases
from fairlead.engines.ray.leases import TrackedRayLease, write
from fairlead.engines.ray.transfer import RayTransfer
from fairlead.engines.shared.multi_node import split_by_node
from fairlead.engines.shared.nodes.files import NodeFiles, with_node_paths
from fairlead.engines.slurm.transfer import CheckpointTransfer, copy
from fairlead.job import checkpoint


class Transport(ABC):
    """A data directory, the local ones of nodes *a* and *b*, and one job's leases on them."""

    damages = 0
    """number of the next transfers that arrive damaged"""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.shared = str(root / "server/jobs/j1/checkpoint")
        self.transfers = 0

    def order(self, number: int, *devices: tuple[str, int]) -> LaunchOrder:
        return LaunchOrder(
            lease=number,
            job="j1",
            command=("true",),
            directory="/",
            devices=devices,
            accelerators=("v100",) * len(devices),
            checkpoint_dir=self.shared,
            log_dir=str(self.root / "server/jobs/j1/logs"),
        )

    def local_dir(self, node: str) -> str:
        return str(self.root / node / "jobs/j1/checkpoint")

    def save(self, order: LaunchOrder, steps: int) -> None:
        """Save a checkpoint as the members of a gang on one node do."""
        where = self.local_dir(order.devices[0][0])
        for rank in range(len(order.devices)):
            checkpoint.write(where, order.lease, steps, rank, payload(rank))
        checkpoint.commit(where, order.lease, steps, len(order.devices))

    def committed(self, directory: str) -> tuple[int, int] | None:
        latest = checkpoint.latest(directory)
        return None if latest is None else (latest.lease, latest.steps)

    def is_damaged(self) -> bool:
        """Count a transfer; return whether it arrives damaged."""
        self.transfers += 1
        self.damages -= 1
        return self.damages >= 0

    @abstractmethod
    def to_nodes(self, order: LaunchOrder) -> None:
        """Transfer the committed checkpoint to the nodes of a lease."""

    @abstractmethod
    def to_server(self, order: LaunchOrder) -> None:
        """Transfer the members' new checkpoints to the data directory."""


class ByRay(Transport):
    """In chunks, through the node agents."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._files = {name: NodeFiles(root / name) for name in ("a", "b")}
        self._leases: dict[int, TrackedRayLease] = {}
        self._transfer = RayTransfer(self._call, lambda node: str(root / node), chunk_bytes=1000)

    async def _call(self, node: str, method: str, *arguments: object) -> object:
        if method == "write":
            path, offset, chunk = arguments
            assert isinstance(chunk, bytes)
            if offset == 0 and self.is_damaged():
                arguments = (path, offset, b"?" + chunk[1:])
        return await asyncio.to_thread(getattr(self._files[node], method), *arguments)

    def to_nodes(self, order: LaunchOrder) -> None:
        lease = self._leases[order.lease] = write(self.root / str(order.lease), order)

        async def all_parts() -> None:
            for part in lease.parts:
                await self._transfer.upload(order, part)

        asyncio.run(all_parts())

    def part(self, order: LaunchOrder) -> LaunchOrder:
        """Return the order of a lease's first node."""
        return self._leases[order.lease].parts[0].order

    def to_server(self, order: LaunchOrder) -> None:
        lease = self._leases[order.lease]

        async def all_parts() -> None:
            for part in lease.parts:
                saved = self._files[part.node].new_checkpoint(part.order)
                if saved is not None:
                    await self._transfer.download_checkpoint(lease, part, saved)

        asyncio.run(all_parts())


class BySlurm(Transport):
    """As files, through the keepers."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._transfers: dict[int, list[CheckpointTransfer]] = {}

    def _copy(self, source: Path, target: Path) -> None:
        copy(source, target)
        if self.is_damaged():
            target.write_bytes(b"?" + target.read_bytes()[1:])

    def to_nodes(self, order: LaunchOrder) -> None:
        checkpoint.raise_fence(order.checkpoint_dir, order.lease)  # as every keeper does
        gang = split_by_node(order)
        self._transfers[order.lease] = transfers = [
            CheckpointTransfer(part, gang, self.root / part.devices[0][0], self._copy)
            for part in gang
        ]
        for transfer in transfers:
            transfer.download()

    def to_server(self, order: LaunchOrder) -> None:
        for transfer in self._transfers[order.lease]:
            transfer.transfer_new()


@pytest.fixture(params=[ByRay, BySlurm])
def transport(request: pytest.FixtureRequest, tmp_path: Path) -> Transport:
    transport = request.param(tmp_path)
    assert isinstance(transport, Transport)
    return transport


def payload(rank: int) -> bytes:
    return bytes([rank]) * 12_345


def test_a_checkpoint_of_one_node_is_committed_on_the_next(transport: Transport) -> None:
    first = transport.order(1, ("a", 0))
    transport.to_nodes(first)
    transport.save(first, 7)
    transport.to_server(first)
    assert transport.committed(transport.shared) == (1, 7)
    transport.to_nodes(transport.order(2, ("b", 0)))
    assert checkpoint.read(transport.local_dir("b"), 0) == payload(0)
    assert not [path for path in Path(transport.local_dir("b")).iterdir() if ".ckpt." in path.name]
    # Back on the first node nothing needs to be transferred: its copy is intact.
    before = transport.transfers
    transport.to_nodes(transport.order(3, ("a", 0)))
    assert transport.transfers == before
    assert checkpoint.read(transport.local_dir("a"), 0) == payload(0)
    assert checkpoint.fence(transport.local_dir("a")) == 3


def test_a_copy_that_arrives_damaged_is_not_used(transport: Transport) -> None:
    first = transport.order(1, ("a", 0))
    transport.to_nodes(first)
    transport.save(first, 7)
    transport.to_server(first)
    transport.damages = 3
    second = transport.order(2, ("b", 0))
    with pytest.raises(OSError, match="damaged"):
        transport.to_nodes(second)
    assert transport.committed(transport.local_dir("b")) is None
    transport.damages = 0
    transport.to_nodes(second)
    assert checkpoint.read(transport.local_dir("b"), 0) == payload(0)


def test_a_checkpoint_damaged_at_its_source_is_not_committed(transport: Transport) -> None:
    lease = transport.order(1, ("a", 0))
    transport.to_nodes(lease)
    transport.save(lease, 7)
    transport.to_server(lease)
    transport.save(lease, 9)
    file = Path(transport.local_dir("a"), "1-9.0.ckpt")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    try:
        transport.to_server(lease)
    except OSError as error:
        assert "damaged" in str(error)  # noqa: PT017  # Slurm's transfer only logs it
    assert transport.committed(transport.shared) == (1, 7)
    transport.save(lease, 11)
    transport.to_server(lease)
    assert transport.committed(transport.shared) == (1, 11)


def test_checkpoints_of_a_lost_node_are_fenced(transport: Transport) -> None:
    first = transport.order(1, ("a", 0))
    transport.to_nodes(first)
    transport.save(first, 7)
    transport.to_server(first)
    second = transport.order(2, ("b", 0))
    transport.to_nodes(second)
    transport.save(first, 50)  # still running, unaware of its loss
    transport.to_server(first)
    assert transport.committed(transport.shared) == (1, 7)
    transport.save(second, 8)
    transport.to_server(second)
    # A later lease there replaces the fenced checkpoint.
    transport.to_nodes(transport.order(3, ("a", 0)))
    assert transport.committed(transport.local_dir("a")) == (2, 8)
    with pytest.raises(checkpoint.FencedError):
        transport.to_nodes(transport.order(2, ("a", 0)))


def test_a_job_does_not_start_from_an_uncommitted_checkpoint(
    transport: Transport,
) -> None:
    first = transport.order(1, ("a", 0))
    transport.to_nodes(first)
    transport.save(first, 7)  # never transferred
    transport.to_nodes(transport.order(2, ("a", 0)))
    assert transport.committed(transport.local_dir("a")) is None


def save_with_others(where: str, rank: int, done: list[object]) -> None:
    """Save one checkpoint as a member of a gang of three does."""
    checkpoint.write(where, 1, 5, rank, payload(rank))
    if rank == 0:
        checkpoint.commit(where, 1, 5, 3, wait_s=90.0)
        done.append("committed")
    else:
        done.append(checkpoint.wait_for_commit(where, 1, 5, wait_s=90.0))


def test_a_gang_on_several_nodes_saves_together(transport: Transport) -> None:
    lease = transport.order(1, ("a", 0), ("b", 0), ("b", 1))
    transport.to_nodes(lease)
    done: list[object] = []
    members = [
        threading.Thread(target=save_with_others, args=(transport.local_dir(node), rank, done))
        for rank, node in enumerate("abb")
    ]
    for member in members:
        member.start()
    while any(member.is_alive() for member in members):
        transport.to_server(lease)
        time.sleep(0.02)
    transport.to_server(lease)
    assert sorted(map(str, done)) == ["True", "True", "committed"]
    assert transport.committed(transport.shared) == (1, 5)
    # The data directory has all files, for any placement of the next lease.
    for rank in range(3):
        assert checkpoint.read(transport.shared, rank) == payload(rank)
    transport.to_nodes(transport.order(2, ("b", 0), ("b", 1), ("a", 0)))
    for rank, node in enumerate("bba"):
        assert checkpoint.read(transport.local_dir(node), rank) == payload(rank)


def test_an_order_with_node_paths_uses_the_node_s_home(tmp_path: Path) -> None:
    local = with_node_paths(ByRay(tmp_path).order(1, ("a", 0)), "/home/of/a")
    assert local.checkpoint_dir == "/home/of/a/jobs/j1/checkpoint"
    assert local.log_dir == "/home/of/a/jobs/j1/logs"


def test_node_files_reject_paths_outside_their_home(tmp_path: Path) -> None:
    files = NodeFiles(tmp_path / "home")
    for method, arguments in (("read", (0, 1)), ("write", (0, b"x"))):
        with pytest.raises(ValueError, match="is outside"):
            getattr(files, method)("../outside", *arguments)


class LoggingMember:
    """A member on node *a* whose log is transferred through Ray."""

    def __init__(self, root: Path) -> None:
        files = NodeFiles(root / "a")

        async def call(_: str, method: str, *arguments: object) -> object:
            return getattr(files, method)(*arguments)

        self._transfer = RayTransfer(call, lambda node: str(root / node))
        self._lease = write(root / "1", ByRay(root).order(1, ("a", 0)))
        (self._part,) = self._lease.parts
        self.server_logs = Path(self._lease.order.log_dir)
        local = with_node_paths(self._part.order, str(root / "a")).log_dir
        self._log = Path(local, "1.0.log")
        self._log.parent.mkdir(parents=True)

    def print(self, *lines: str) -> None:
        """Print lines to a log in parts of 16 bytes."""
        with closing(LogFile(self._log, 16)) as log:
            for line in lines:
                log.write(line.encode())

    def transfer(self) -> tuple[bytes, int]:
        """Transfer the log; return the server's copy and its end."""
        asyncio.run(self._transfer.download_logs(self._lease, self._part))
        return read_leases(self.server_logs, 0, 0, 1 << 20)

    def restart_server(self) -> None:
        """Drop the log positions, as a restarted server that has only its copies on disk."""
        self._transfer.forget(self._lease)


def test_ray_transfers_each_part_of_a_growing_log_once(tmp_path: Path) -> None:
    member = LoggingMember(tmp_path)
    assert member.transfer() == (b"", 0)
    member.print("first\n")
    assert member.transfer() == (b"first\n", 6)
    member.print("second\n")
    assert member.transfer() == (b"first\nsecond\n", 13)
    member.restart_server()
    assert member.transfer() == (b"first\nsecond\n", 13)


def test_ray_transfers_a_whole_log_while_its_oldest_parts_are_removed(tmp_path: Path) -> None:
    member, printed = LoggingMember(tmp_path), ""
    for number in range(20):
        member.print(f"line {number:3d}\n", f"and {number:4d}\n")
        printed += f"line {number:3d}\nand {number:4d}\n"
        assert member.transfer() == (printed.encode(), len(printed))
        member.restart_server()


def test_output_dropped_before_its_transfer_leaves_a_gap_in_the_log(
    tmp_path: Path,
) -> None:
    member = LoggingMember(tmp_path)
    member.print("first\n")
    member.transfer()
    member.print(*(f"line {number:3d}\n" for number in range(20)))
    kept = "".join(f"line {number:3d}\n" for number in range(16, 20))
    assert member.transfer() == (f"first\n{kept}".encode(), 6 + 20 * 9)
    member.restart_server()
    member.print("last\n")
    assert member.transfer() == (f"first\n{kept}last\n".encode(), 6 + 20 * 9 + 5)
    assert read_leases(member.server_logs, 0, 6 + 20 * 9, 1 << 20)[0] == b"last\n"


def test_a_log_is_completed_once_the_server_has_disk_space(tmp_path: Path) -> None:
    member = LoggingMember(tmp_path)
    member.print("first\n")
    member.transfer()
    member.print("second\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        assert member.transfer() == (b"first\nseco", 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert member.transfer() == (b"first\nsecond\n", 13)


def test_a_code_snapshot_reaches_a_ray_node_intact_once_and_leaves_with_the_lease(
    tmp_path: Path,
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/train.py").write_text("x" * 3000)
    with (tmp_path / "packed").open("wb") as file:
        code = pack(tmp_path / "home", file, 1 << 20)
    stored = (tmp_path / "packed").rename(tmp_path / f"{code.digest}.code")
    transport = ByRay(tmp_path)
    order = replace(transport.order(1, ("a", 0)), code_snapshot=str(stored), directory="/server")
    transport.damages = 1
    with pytest.raises(OSError, match="code snapshot of job j1 arrived damaged on a"):
        transport.to_nodes(order)
    transport.to_nodes(order)
    transfers = transport.transfers
    transport.to_nodes(order)
    assert transport.transfers == transfers
    part = transport.part(order)
    unpack(Path(part.code_snapshot), Path(part.directory))
    jobs = tmp_path / "a/jobs/j1"
    assert (part.directory, (jobs / "code/train.py").stat().st_size) == (str(jobs / "code"), 3000)
    files = NodeFiles(tmp_path / "a")
    files.remove_code("j1", 0)
    assert (jobs / "code").is_dir()
    files.remove_code("j1", 1)
    assert not (jobs / "code").exists()
    assert not files.has_code(f"jobs/j1/{stored.name}")
