"""A scheduler whose plans a test scripts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.core import Scheduler
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.commands import ComputePlan, Launch, Preempt
from fairlead.model.job import Job
from fairlead.model.lease import Placement, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.placement import plan_transition

SPEEDS = SpeedTable(
    {SpeedKey("m", gang, name): 1.0 for gang in (1, 2, 3) for name in ("v100", "k80")}
)


@dataclass
class Scripted:
    """A mechanism whose plans the tests write."""

    def initial(self) -> int:
        return 0

    def plan(self, snap: Snapshot, memory: int) -> tuple[Plan, int]:
        raise AssertionError(snap, memory)


class Refilling(Scripted):
    """Gives the first idle device to the last job."""

    def refill(self, snap: Snapshot, memory: int, idle: np.ndarray) -> Placements:
        del memory
        return Placements.of([Placement(int(snap.job[-1]), 0, (int(idle[0]),))])


def scheduler(mechanism: Scripted | None = None, *, plan_lead_s: float = 0.0) -> Scheduler[int]:
    cluster = Cluster.of({"v100": 2, "k80": 2}, per_node=1)
    made = Scheduler(cluster, SPEEDS, mechanism or Scripted(), plan_lead_s=plan_lead_s)
    for name in "abc":
        made.handle(ev.JobSubmitted(0.0, Job(id=name, workload="m", total_steps=100)))
    return made


def plan(*holds: int, until: float = 360.0, copy: list[int] | None = None) -> "Wish":
    return Wish(np.array(holds).reshape(-1, 4), until, copy)


@dataclass
class Wish:
    """Lanes × devices → job that should run there, -1 for none."""

    holds: np.ndarray
    until: float
    copy: list[int] | None

    def placements(self) -> list[Placement]:
        copies = (
            np.zeros_like(self.holds)
            if self.copy is None
            else np.reshape(self.copy, self.holds.shape)
        )
        devices: dict[tuple[int, int], list[int]] = {}
        for (lane, device), job in np.ndenumerate(self.holds):
            if job >= 0:
                devices.setdefault((int(job), int(copies[lane, device])), []).append(device)
        return [Placement(job, copy, tuple(on)) for (job, copy), on in devices.items()]


def ask(made: Scheduler[int], at: float) -> ComputePlan:
    (request,) = [c for c in made.handle(ev.PlanDue(at)) if isinstance(c, ComputePlan)]
    return request


def answer(made: Scheduler[int], to: ComputePlan, at: float, wish: "Wish") -> list[object]:
    stop, start = plan_transition(to.snapshot, wish.placements())
    computed = Plan(stop, start, wish.until, wish.until)
    return list(made.handle(ev.PlanReady(at, to.version, computed, 0)))


def ready(made: Scheduler[int], at: float, wish: "Wish") -> list[object]:
    return answer(made, ask(made, at), at, wish)


def launched(commands: Sequence[object]) -> dict[int, tuple[int, ...]]:
    return {p.job: p.devices for c in commands if isinstance(c, Launch) for p in c.on}


def lease_of(made: Scheduler[int], job: int) -> int:
    (slot,) = made.leases.of_job(job)
    return int(made.leases.lease[slot])


def preempted(commands: Sequence[object]) -> set[int]:
    return {int(n) for c in commands if isinstance(c, Preempt) for n in c.lease}
