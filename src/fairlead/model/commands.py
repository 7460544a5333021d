"""Commands: the scheduler returns them, drivers perform them."""

from dataclasses import dataclass
from typing import Literal

from fairlead.model.arrays import IntArray
from fairlead.model.lease import Placements
from fairlead.model.snapshot import Snapshot
from fairlead.model.value import value


@value
class Launch:
    """Start these jobs now on their devices, each under its lease until ``until``."""

    lease: IntArray
    on: Placements
    until: float
    exclusive: bool = False
    """whether no device has ever been shared by packed jobs"""


@value
class Renew:
    """Renew these leases until ``until``."""

    lease: IntArray
    until: float


@value
class Preempt:
    """Preempt these leases: the jobs checkpoint and give up their devices."""

    lease: IntArray


@dataclass(frozen=True, slots=True)
class MergeCopies:
    """Merge the checkpoints of a job's copies into one."""

    job: int


@value
class ComputePlan:
    """Run the planner on this snapshot and memory and answer with PlanReady(version)."""

    version: int
    snapshot: Snapshot
    memory: object


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Send the named event at ``at``; replaces an earlier timer of that name; None clears it."""

    event: Literal["PlanDue", "RoundEnd"]
    at: float | None


Command = Launch | Renew | Preempt | MergeCopies | ComputePlan | SetTimer
