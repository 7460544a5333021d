"""What happens to the scheduler. Time arrives only here, in ``at``."""

from dataclasses import dataclass
from typing import Literal

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Node
from fairlead.model.job import Job, Tenant
from fairlead.model.plan import Plan
from fairlead.model.tenants.usage_decay import History
from fairlead.model.value import value

Outcome = Literal["finished", "left", "failed", "lost"]


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A tenant hands in a job."""

    at: float
    job: Job


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """A tenant takes a job back."""

    at: float
    job_id: str


@dataclass(frozen=True, slots=True)
class JobHeld:
    """A job is to wait, whatever is free, until it is released."""

    at: float
    job_id: str


@dataclass(frozen=True, slots=True)
class JobReleased:
    """A held job may run again."""

    at: float
    job_id: str


@dataclass(frozen=True, slots=True)
class JobFailed:
    """A job is given up: it has crashed too often."""

    at: float
    job_id: str


@dataclass(frozen=True, slots=True)
class JobChanged:
    """A job is submitted anew with another weight, priority or deadline; its progress stays."""

    at: float
    job: Job


@dataclass(frozen=True, slots=True)
class TenantChanged:
    """An operator adds a tenant or changes its weight, parent or inner policy."""

    at: float
    tenant: Tenant


@dataclass(frozen=True, slots=True)
class HistoryChanged:
    """An operator says how use from now on moves later weights; None: not at all.

    What was used before is forgotten.
    """

    at: float
    history: History | None


@value
class Progress:
    """Running jobs tell how many steps they have made in all; never fewer than before."""

    at: float
    lease: IntArray
    steps: FloatArray


@value
class LeasesEnded:
    """Jobs have given up their devices, with the steps that their checkpoints hold.

    ``finished``: the job is done; ``left``: it was told to leave; ``failed``: it crashed and may
    be tried again; ``lost``: its node is gone.
    """

    at: float
    lease: IntArray
    steps: FloatArray
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Measured:
    """A job tells what it measured of itself on what it holds now."""

    at: float
    lease: int
    steps_per_s: float
    utilization: float | None = None
    memory_gib: float | None = None


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node and all its devices are gone."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeReturned:
    """A lost node is back, with all its devices idle."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeAdded:
    """A node that was never there before has joined, with all its devices idle."""

    at: float
    node: Node


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """A node is gone for good: nobody is to wait for it, and it never returns."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeCordoned:
    """Nothing new is to start on a node, while what runs there goes on; or that is over."""

    at: float
    node: str
    cordoned: bool = True


@dataclass(frozen=True, slots=True)
class DevicesTaken:
    """Others hold these devices of a node, given by their numbers on it, and no more than these.

    Nothing is placed on them until they are free again, while what we run on them goes on.
    """

    at: float
    node: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlanDue:
    """It is time to ask for the next plan, early enough to renew leases."""

    at: float


@value
class PlanReady:
    """The planner has answered request ``version``, with the mechanism's new memory."""

    at: float
    version: int
    plan: Plan
    memory: object


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
    | TenantChanged
    | HistoryChanged
    | Progress
    | LeasesEnded
    | Measured
    | NodeLost
    | NodeReturned
    | NodeAdded
    | NodeRemoved
    | NodeCordoned
    | DevicesTaken
    | PlanDue
    | PlanReady
    | RoundEnd
)
NodeEvent = NodeLost | NodeReturned | NodeAdded | NodeRemoved | NodeCordoned | DevicesTaken
"""what happens to nodes"""
