"""What the scheduler wants done. It performs nothing itself."""

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
    apart: bool = False
    """whether it is known that nobody has ever shared devices"""


@value
class Renew:
    """Let these leases go on until ``until``."""

    lease: IntArray
    until: float


@value
class Preempt:
    """Have these leases checkpoint and give up their devices."""

    lease: IntArray


@dataclass(frozen=True, slots=True)
class MergeCopies:
    """Merge what the copies of a job have learnt into one checkpoint."""

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
