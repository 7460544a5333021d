"""The engine protocol: launch orders in, reports out."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from fairlead.model.lease_outcome import LeaseOutcome

if TYPE_CHECKING:  # a keeper starts for every lease and must not load numpy for this
    from fairlead.model.cluster import Cluster, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """One lease to start: its command, devices and limits."""

    lease: int
    job: str
    command: tuple[str, ...]
    directory: str
    """working directory of the command"""
    code_snapshot: str = ""
    """file that the keeper unpacks into the working directory, unless that exists"""
    container: str = ""
    """image in which the command runs; empty: none"""
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    """environment variable → name of the secret whose value the keeper fetches for it"""
    devices: tuple[tuple[str, int], ...]
    """(node, number on the node) of every device of the gang; one process runs on each"""
    accelerators: tuple[str, ...]
    """devices → accelerator"""
    visible: tuple[str, ...] = ()
    """devices → name for CUDA_VISIBLE_DEVICES; empty where devices are emulated"""
    checkpoint_dir: str
    log_dir: str
    total_steps: int | None = None
    grace_s: float = 30.0
    """seconds between the stop signal and the kill"""
    memory_gib: float | None = None
    """limit for all processes together; above it they are killed"""
    time_limit_s: float | None = None
    """seconds until the stop signal: the rest of the job's time limit"""
    progress_pattern: str | None = None
    """regular expression with one group, the number of steps made, for jobs without the library"""
    tenant: str = ""
    """owner of the job, for engines that start processes as the tenant's Unix user"""
    user: str = ""
    """Unix user of the members; empty: the keeper's"""
    max_processes: int | None = None
    """limit for all processes together; above it they are killed"""
    first_rank: int = 0
    """rank of the first member started here: a gang over several nodes has one order per node"""
    world_size: int | None = None
    """members of the whole gang; None when all are started here"""
    meets_at: str = ""
    """host:port of the rendezvous of a gang over several nodes"""
    may_stay: bool = True
    """its process may be there without a device, before or after the lease, where the engine
    offers that"""
    forks: bool = False
    """its job may run in copies, whose average the processes of its next leases must read"""
    offload_gib: float = 0.0
    """host memory up to which its processes may stay without their device after the lease"""
    resumes: int | None = None
    """first lease of the parked processes that continue under this one"""
    restart_reason: str = ""
    """reason for which the job's parked processes do not; empty if there were none"""


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
    """steps of the committed checkpoint, None without one"""
    message: str = ""
    exit_codes: tuple[int, ...] = ()
    fence: int | None = None
    """``refused``: the lease that may write instead, by the fence of the job's checkpoints"""
    parked: bool = False
    """its processes stay, without their devices, for the job's next lease"""
    resumed: bool = False
    """it continued parked processes"""
    handed_over: bool = False
    """it ran in a process that was started for it while its predecessor trained"""
    unsaved: float | None = None
    """steps that its parked process is saving behind the lease; a ``Saved`` follows"""
    suspended: bool = False
    """its parked process does not use the library: all of its work is in its memory"""
    switch: str = ""
    """reasons for which its processes, or those before them, did not stay; empty without any"""
    at: float | None = None
    """time at which they ended, if the engine knows it by the server's clock"""


@dataclass(frozen=True, slots=True)
class Saved:
    """The process parked after a lease has saved its state, or has ended without."""

    lease: int
    job: str
    steps: float | None
    """steps of the committed checkpoint, None without one"""


@dataclass(frozen=True, slots=True)
class Progressed:
    """A job without the library has printed its number of steps."""

    lease: int
    steps: float


@dataclass(frozen=True, slots=True)
class NodeDown:
    """A node no longer answers."""

    node: str


@dataclass(frozen=True, slots=True)
class NodeUp:
    """A node is back, and no lease declared lost runs on it any longer."""

    node: str


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A node has joined that the inventory did not have before; no lease runs on it."""

    node: "Node"


@dataclass(frozen=True, slots=True)
class DevicesTakenReport:
    """Users outside Fairlead hold exactly these devices of a node, by their numbers on it.

    An engine that shares nodes reports this for every node at its first poll, also where no
    device is taken, and on every change. Devices under Fairlead's leases are never taken.
    """

    node: str
    numbers: tuple[int, ...]
    gone: bool = False
    """the devices are missing: leases on them cannot continue"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading:
    """Condition of one device; None where its driver does not report a value."""

    number: int
    """number on the node"""
    memory_used_gib: float | None = None
    memory_gib: float | None = None
    utilisation: float | None = None
    """fraction of the last second or so in which the device computed"""
    temperature_c: float | None = None
    uncorrectable_ecc: int | None = None
    """uncorrectable memory errors since the device was last reset"""
    throttled: tuple[str, ...] = ()
    """reasons for which its clocks are reduced now"""
    xids: tuple[int, ...] = ()
    """XID errors that the driver has reported since the last reading"""
    unusable: str = ""
    """reason for which the driver cannot use it, such as a device that has fallen off the bus"""


@dataclass(frozen=True, slots=True)
class DevicesRead:
    """New readings of devices of a node."""

    node: str
    readings: tuple[DeviceReading, ...]


Report = (
    Started
    | Ended
    | Saved
    | Progressed
    | NodeDown
    | NodeUp
    | NodeJoined
    | DevicesTakenReport
    | DevicesRead
)


class Engine(Protocol):
    """Starts and stops processes on devices. Every call can be repeated without harm."""

    async def inventory(self) -> "Cluster":
        """Return the nodes and their devices."""
        ...

    async def launch(self, order: LaunchOrder) -> None:
        """Start the processes of a lease; do nothing if they were started before."""
        ...

    async def stop(self, lease: int) -> None:
        """Ask a lease to checkpoint and leave, and kill it after its grace."""
        ...

    async def running(self) -> frozenset[int]:
        """Return the leases whose processes live."""
        ...

    async def adopt(self, leases: Collection[int]) -> None:
        """Recover after a restart: keep these leases, stop all others, report those that ended."""
        ...

    def reports(self) -> AsyncIterator[Report]:
        """Yield reports about leases and nodes."""
        ...

    async def close(self) -> None:
        """Release the engine's resources; processes of leases keep running."""
        ...


@runtime_checkable
class SupportsKill(Protocol):
    """An engine that can kill the processes of a lease without their grace."""

    async def kill(self, lease: int) -> None:
        """Kill the processes of a lease at once; its end is reported as usual."""
        ...


@runtime_checkable
class SupportsParking(Protocol):
    """An engine that keeps processes of preempted jobs without their devices."""

    def parked_jobs(self) -> Mapping[str, tuple[tuple[str, int], ...]]:
        """Return job → (node, number on it) of the devices that its parked processes left."""
        ...

    async def end_parked(self, job: str, *, drained: bool = False) -> None:
        """End the parked processes of a job, if there are any.

        ``drained``: because one of their nodes is; the log of the job's next lease says so.
        """
        ...

    def remembered_jobs(self) -> Collection[str]:
        """Return the jobs of which something is remembered for their next leases."""
        ...

    async def forget_job(self, job: str) -> None:
        """Forget a job that has ended, or was suspended."""
        ...


@runtime_checkable
class SupportsHandOver(Protocol):
    """An engine that starts the process of a job's next lease before that lease."""

    prepares: bool
    """False: ``prepare`` does nothing"""

    def prepared_jobs(self) -> Mapping[str, tuple[tuple[str, int], ...]]:
        """Return job → (node, number on it) of the devices for which processes are prepared."""
        ...

    async def prepare(self, *orders: LaunchOrder) -> None:
        """Start the processes that later leases of one job with these orders take; end others.

        The orders' leases have no meaning. A process waits when it attaches.
        """
        ...

    async def end_prepared(self, job: str) -> None:
        """End the processes that are prepared for a job, if there are any."""
        ...


@runtime_checkable
class SupportsGrowth(Protocol):
    """An engine that prepares new members of a gang while the others train."""

    def is_growing(self, lease: int) -> bool:
        """Return whether new members of a lease's gang are about to be ready."""
        ...


@runtime_checkable
class SupportsMig(Protocol):
    """An engine that can divide a GPU into MIG devices."""

    async def check_layout(self, gpu: int, profiles: Sequence[str]) -> Collection[str]:
        """Return the nodes that have devices of a GPU, by its index in ``nvidia-smi``.

        Raises InputError or ProtocolError if the GPU cannot be divided like this.
        """
        ...

    async def set_layout(self, gpu: int, profiles: Sequence[str]) -> None:
        """Divide a GPU that no process uses, or make it whole; then report the devices."""
        ...


@runtime_checkable
class SupportsTenantCheck(Protocol):
    """An engine that cannot run the jobs of every tenant."""

    def check_tenant(self, tenant: str) -> None:
        """Raise InputError if jobs of this tenant cannot run."""
        ...


@runtime_checkable
class SupportsCommandCheck(Protocol):
    """An engine whose jobs see the files of the server's machine."""

    def check_command(
        self, command: Sequence[str], directory: str, environment: Mapping[str, str]
    ) -> None:
        """Raise InputError if there is no such program."""
        ...


@runtime_checkable
class SupportsCopies(Protocol):
    """An engine whose jobs save to the server's own directories, on all nodes.

    There the server can merge the checkpoints of a job's copies.
    """

    shares_checkpoints: bool


@runtime_checkable
class SupportsForget(Protocol):
    """An engine that keeps files of a lease until its end is persisted."""

    async def forget(self, leases: Collection[int]) -> None:
        """Remove the files of leases whose ends are persisted."""
        ...
