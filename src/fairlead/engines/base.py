"""What an engine promises."""

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:  # a keeper starts for every lease and must not load numpy for this
    from fairlead.model.cluster import Cluster, Node

LeaseOutcome = Literal["finished", "left", "failed", "lost", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One lease to start: what to run, where, for whom."""

    lease: int
    job: str
    command: tuple[str, ...]
    directory: str
    """where the command runs"""
    environment: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[tuple[str, int], ...]
    """(node, number on the node) of every device of the gang; one process runs on each"""
    accelerators: tuple[str, ...]
    """devices → accelerator"""
    visible: tuple[str, ...] = ()
    """devices → what CUDA_VISIBLE_DEVICES calls it; empty where devices are emulated"""
    checkpoint_dir: str
    log_dir: str
    total_steps: int | None = None
    grace_s: float = 30.0
    """between being told to stop and being killed"""
    memory_gib: float | None = None
    """of all processes together; above it they are killed"""
    time_limit_s: float | None = None
    progress_pattern: str | None = None
    """regular expression with one group, the number of steps made, for jobs without the library"""
    tenant: str = ""
    """whose job it is, for engines that start processes as the tenant's own user"""
    first_rank: int = 0
    """of the members started here: a gang over several machines has an order for each of them"""
    world_size: int | None = None
    """members of the whole gang; None when all are started here"""
    meets_at: str = ""
    """host:port where the members of a gang over several machines meet"""


@dataclass(frozen=True, slots=True)
class Started:
    """The processes of a lease have started."""

    lease: int


@dataclass(frozen=True, slots=True)
class Ended:
    """All processes of a lease have ended, or will never start."""

    lease: int
    ending: LeaseOutcome
    steps: float | None
    """what the checkpoint in force holds, None if there is none"""
    message: str = ""
    exit_codes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Progressed:
    """A job without the library has printed how far it is."""

    lease: int
    steps: float


@dataclass(frozen=True, slots=True)
class NodeDown:
    """A node does not answer any more."""

    node: str


@dataclass(frozen=True, slots=True)
class NodeUp:
    """A node is back, and nothing runs on it any more that was given up."""

    node: str


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A node has joined that the inventory did not have before; nothing of ours runs on it."""

    node: "Node"


@dataclass(frozen=True, slots=True)
class DevicesTaken:
    """Others hold these devices of a node, by their numbers on it, and no more than these.

    An engine that shares nodes with others reports this for every node when it first looks, also
    where they hold none, and whenever it changes. What runs under our leases is never theirs.
    """

    node: str
    numbers: tuple[int, ...]


Report = Started | Ended | Progressed | NodeDown | NodeUp | NodeJoined | DevicesTaken


class Engine(Protocol):
    """Starts and stops processes on devices. Every call can be repeated without harm."""

    async def inventory(self) -> "Cluster":
        """Return the nodes and their devices."""
        ...

    async def launch(self, order: Order) -> None:
        """Start the processes of a lease; nothing happens if they were started before."""
        ...

    async def stop(self, lease: int) -> None:
        """Tell a lease to checkpoint and leave, and kill it after its grace."""
        ...

    async def running(self) -> frozenset[int]:
        """Return the leases whose processes live."""
        ...

    async def adopt(self, leases: Collection[int]) -> None:
        """Take over after a restart: keep these leases, stop all others, report what has ended."""
        ...

    def reports(self) -> AsyncIterator[Report]:
        """Yield what happens to leases and nodes."""
        ...

    async def close(self) -> None:
        """Let go of everything; what runs goes on."""
        ...


@runtime_checkable
class SupportsForget(Protocol):
    """An engine that keeps what is left of a lease until its end is written down."""

    async def forget(self, leases: Collection[int]) -> None:
        """Clear away what is left of leases that have ended: nobody asks about them any more."""
        ...
