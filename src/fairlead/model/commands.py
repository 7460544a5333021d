"""What the scheduler wants done. It performs nothing itself."""

from dataclasses import dataclass
from typing import Literal

from fairlead.model.arrays import IntArray
from fairlead.model.plan import Assignments
from fairlead.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """Start these units now, each job (or copy of it) under its lease until ``until``.

    ``lease`` is units × width, -1 where a unit has fewer jobs. Lease numbers only grow, so a
    lease's number is also the epoch that fences writers of older leases.
    """

    units: Assignments
    lease: IntArray
    until: float


@dataclass(frozen=True, slots=True, eq=False)
class Renew:
    """Let these leases go on until ``until``."""

    lease: IntArray
    until: float


@dataclass(frozen=True, slots=True, eq=False)
class Suspend:
    """Have these leases checkpoint and give up their devices."""

    lease: IntArray


@dataclass(frozen=True, slots=True)
class Consolidate:
    """Merge what the copies of a job have learnt into one checkpoint."""

    job: int


@dataclass(frozen=True, slots=True, eq=False)
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


Command = Launch | Renew | Suspend | Consolidate | ComputePlan | SetTimer
