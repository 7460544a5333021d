"""Events: the inputs of the scheduler. Time arrives only here, in ``at``."""

from dataclasses import dataclass, field
from typing import ClassVar

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Node
from fairlead.model.job import OMIT_IF_EMPTY, OMIT_IF_NONE, Job
from fairlead.model.lease_outcome import LoggedOutcome
from fairlead.model.plan import Plan
from fairlead.model.speeds.key import Consolidation, SpeedKey
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.usage_decay import History
from fairlead.model.value import value


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A tenant submits a job; a held one is not scheduled until it is released."""

    at: float
    job: Job
    held: bool = field(default=False, metadata=OMIT_IF_EMPTY)
    more: bool = field(default=False, metadata=OMIT_IF_EMPTY)
    """the next event is of the same request: idle devices are used after the last of its jobs"""


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """A tenant cancels a job."""

    at: float
    job_id: str
    more: bool = field(default=False, metadata=OMIT_IF_EMPTY)


@dataclass(frozen=True, slots=True)
class JobHeld:
    """A job must not be scheduled until it is released."""

    at: float
    job_id: str
    more: bool = field(default=False, metadata=OMIT_IF_EMPTY)


@dataclass(frozen=True, slots=True)
class JobReleased:
    """A held job may be scheduled again, from these steps if it has not made more."""

    at: float
    job_id: str
    steps: float = field(default=0.0, metadata=OMIT_IF_EMPTY)
    more: bool = field(default=False, metadata=OMIT_IF_EMPTY)


@dataclass(frozen=True, slots=True)
class JobFailed:
    """A job has crashed too often and is not retried."""

    at: float
    job_id: str


@dataclass(frozen=True, slots=True)
class JobChanged:
    """A job gets another weight, priority or deadline; its progress stays."""

    at: float
    job: Job


@dataclass(frozen=True, slots=True)
class JobsRemoved:
    """Ended jobs are no longer kept; their numbers stay taken."""

    at: float
    job_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TenantChanged:
    """An operator adds a tenant or changes its weight, parent or inner policy."""

    at: float
    tenant: Tenant


@dataclass(frozen=True, slots=True)
class HistoryChanged:
    """An operator sets the effect of past usage on weights; None: no effect.

    Usage before this event does not count.
    """

    at: float
    history: History | None


@value
class Progress:
    """Running jobs report their total steps; never fewer than before."""

    at: float
    lease: IntArray
    steps: FloatArray


@value
class LeasesEnded:
    """Leases have ended; ``steps`` are those of the jobs' checkpoints.

    ``finished``: the job is done; ``left``: it was preempted or stopped; ``failed``: it crashed
    and may be retried; ``lost``: its node is lost.
    """

    at: float
    lease: IntArray
    steps: FloatArray
    outcome: LoggedOutcome
    unsaved: FloatArray | None = field(default=None, metadata=OMIT_IF_NONE)
    """steps in the memory of processes that stay and are saving them; ``StepsSaved`` follows"""
    suspended: bool = field(default=False, metadata=OMIT_IF_EMPTY)
    """their processes stay with all of their work in memory, and save none"""
    held_until: FloatArray | None = field(default=None, metadata=OMIT_IF_NONE)
    """time at which their devices were given up, if the server saw it only later"""


@dataclass(frozen=True, slots=True)
class StepsSaved:
    """A job's process that stayed after its lease has saved its state, or has ended without.

    ``steps`` are those of the job's checkpoint.
    """

    at: float
    job_id: str
    steps: float
    lost: bool = field(default=False, metadata=OMIT_IF_EMPTY)
    """whether steps were lost that counted as made"""


@value
class LeasesPinned:
    """Exactly these leases keep their devices: no plan preempts them until they end."""

    at: float
    lease: IntArray


@dataclass(frozen=True, slots=True)
class Measured:
    """A job reports measurements on the devices it holds now."""

    at: float
    lease: int
    steps_per_s: float
    utilization: float | None = None
    memory_gib: float | None = None


@value
class JobsMeasured:
    """Jobs report measurements on the devices they hold now; NaN where one is unknown."""

    at: float
    lease: IntArray
    steps_per_s: FloatArray
    utilization: FloatArray
    memory_gib: FloatArray


@dataclass(frozen=True, slots=True)
class RestartMeasured:
    """A job that was preempted has begun to make progress again, this long after its launch."""

    at: float
    job_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SpeedMeasured:
    """Running jobs have measured another speed of a workload than was believed so far.

    ``scoped_workload`` names the jobs that the speed is believed of.
    """

    at: float
    workload: str
    gang: int
    accelerator: str
    steps_per_s: float
    partner: str | None = field(default=None, metadata=OMIT_IF_NONE)
    """scoped workload of the job on the same devices; None for a job that runs alone"""
    placement: Consolidation | None = field(default=None, metadata=OMIT_IF_NONE)
    """None: it counts for every placement, as in earlier versions"""

    @classmethod
    def of(cls, at: float, key: SpeedKey, steps_per_s: float) -> "SpeedMeasured":
        """Return the event of a measured speed; a gang alone has a placement."""
        workload, gang, accelerator, placement, partner = key
        placed = placement if gang > 1 and partner is None else None
        return cls(at, workload, gang, accelerator, steps_per_s, partner, placed)


@dataclass(frozen=True, slots=True)
class SpeedsForgotten:
    """An operator drops measured speeds; a name that is empty selects all."""

    at: float
    tenant: str
    workload: str
    accelerator: str


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node and all its devices are lost."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """An operator has drained a node: nothing runs there until an operator returns it.

    The event log records it as ``NodeLost``, which has the same effect; a document in the store
    tells drained nodes from lost ones.
    """

    WIRE_NAME: ClassVar[str] = "NodeLost"

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeReturned:
    """A lost node is back, with all its devices idle."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeAdded:
    """A new node has joined, with all its devices idle."""

    at: float
    node: Node


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """A node is removed: no job waits for it, and it does not return unless it is restored."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeRestored:
    """A removed node is known again; it is down until it returns."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeCordoned:
    """A node is cordoned or uncordoned; running leases continue."""

    at: float
    node: str
    cordoned: bool = True


@dataclass(frozen=True, slots=True)
class DevicesTaken:
    """Users outside Fairlead hold exactly these devices of a node, numbered on the node.

    No lease starts on them until they are free again; running leases continue, unless the devices
    are ``gone``.
    """

    at: float
    node: str
    numbers: tuple[int, ...]
    gone: bool = field(default=False, metadata=OMIT_IF_EMPTY)
    """the devices are missing, so that leases on them are preempted"""


@dataclass(frozen=True, slots=True)
class PlanDue:
    """The next plan is due, early enough to renew leases."""

    at: float


@value
class PlanReady:
    """The planner has answered request ``version``, with the mechanism's new memory."""

    at: float
    version: int
    plan: Plan
    memory: object
    left_out: tuple[int, ...] = field(default=(), metadata=OMIT_IF_EMPTY)
    """numbers of the jobs that took no part in the plan, because plans fail with them"""


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """The leases of this round end now, unless they were renewed."""

    at: float


Event = (
    JobSubmitted
    | JobCancelled
    | JobHeld
    | JobReleased
    | JobFailed
    | JobChanged
    | JobsRemoved
    | TenantChanged
    | HistoryChanged
    | Progress
    | LeasesEnded
    | StepsSaved
    | LeasesPinned
    | Measured
    | JobsMeasured
    | RestartMeasured
    | SpeedMeasured
    | SpeedsForgotten
    | NodeLost
    | NodeDrained
    | NodeReturned
    | NodeAdded
    | NodeRemoved
    | NodeRestored
    | NodeCordoned
    | DevicesTaken
    | PlanDue
    | PlanReady
    | RoundEnd
)
NodeEvent = NodeLost | NodeReturned | NodeAdded | NodeRemoved | NodeCordoned | DevicesTaken
"""events about nodes"""
