"""Elastic jobs under Gandiva: the reason for their size, and growth beside pinned leases."""

from dataclasses import dataclass, field

import pytest
from tests.papers.gandiva.recorded_run import MINUTE, Run

from fairlead.mechanisms.gandiva import Gandiva
from fairlead.mechanisms.gandiva.memory import GandivaMemory
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.physics.effects import Physics, TransitionCosts


@dataclass(frozen=True)
class Recording(Gandiva):
    """Gandiva that records the reason for the first job's size before each plan."""

    reasons: list[str] = field(default_factory=list)

    def plan(self, snap: Snapshot, memory: GandivaMemory) -> tuple[Plan, GandivaMemory]:
        if 0 in snap.job:
            reason = self.gang_reason(snap, memory, 0)
            if reason not in self.reasons[-1:]:
                self.reasons.append(reason)
        return super().plan(snap, memory)


def table(scaling: float) -> SpeedTable:
    """Return speeds of a workload that gains this power of its devices."""
    return SpeedTable({SpeedKey("m", g, "p100"): 10.0 * g**scaling for g in (1, 2, 3, 4)})


def reasons(jobs: list[Job], speeds: SpeedTable, mechanism: Recording) -> list[str]:
    Run(jobs, speeds, Cluster.of({"p100": 4}, per_node=4), mechanism)
    return mechanism.reasons


def test_every_size_of_an_elastic_job_has_its_reason() -> None:
    jobs = [
        Job(id="elastic", workload="m", total_steps=9e4, gang=2, min_gang=1, max_gang=4),
        Job(id="other", workload="m", total_steps=3e4, gang=2),
        Job(id="late", workload="m", total_steps=6e4, gang=3, arrival_at=45 * MINUTE),
    ]
    quiet = "no job has come to its node or left it for 300 s"
    assert reasons(jobs, table(1.0), Recording()) == [
        "",
        "It holds 2 of 1 to 4 devices: no device of its node is idle.",
        f"It holds 2 of 1 to 4 devices: it grows once {quiet}, unless jobs wait.",
        f"It holds 4 of 1 to 4 devices: it grew beyond its gang of 2, since {quiet}.",
        "It holds 1 of 1 to 4 devices: it shrank below its gang of 2, since other jobs use its"
        " node.",
    ]


def test_a_job_that_gained_nothing_or_may_not_grow_is_told_so() -> None:
    jobs = [Job(id="elastic", workload="m", total_steps=2e4, max_gang=4)]
    speeds = table(0.0)
    stays = "It holds 1 of 1 to 4 devices: "
    faster = "with more devices it was measured to be no faster."
    assert reasons(jobs, speeds, Recording())[-1] == stays + faster
    off = reasons(jobs, speeds, Recording(growth=False))
    assert off == ["", stays + "growth is switched off."]


@pytest.mark.parametrize(("scaling", "sizes"), [(1.0, [1, 4]), (0.0, [1, 4, 1])])
def test_growth_is_judged_by_its_speed_after_a_start_that_was_pinned(
    scaling: float, sizes: list[int]
) -> None:
    """The scheduler does not see a job that restarts; meanwhile it plans for the other one."""
    jobs = [
        Job(id="elastic", workload="m", total_steps=2e4, max_gang=4),
        Job(id="other", workload="m", total_steps=4e4, gang=4),
    ]
    costs = TransitionCosts(resume_s=150.0, migrate_s=150.0, move_s=0.0)
    run = Run(
        jobs,
        table(scaling),
        Cluster.of({"p100": 8}, per_node=4),
        more={"protect_starts": True, "physics": Physics.with_costs(costs)},
    )
    assert [size for _, _, size in run.leases("elastic")] == sizes


@dataclass(frozen=True)
class Reset(Gandiva):
    """Gandiva whose memory is reset after ten minutes, as when an operator sets the policy."""

    def plan(self, snap: Snapshot, memory: GandivaMemory) -> tuple[Plan, GandivaMemory]:
        return super().plan(snap, self.initial() if snap.starts_at == 10 * MINUTE else memory)


def test_a_grown_job_keeps_its_devices_when_the_policy_is_set_again() -> None:
    job = Job(id="elastic", workload="m", total_steps=5e4, max_gang=4)
    run = Run([job], table(1.0), Cluster.of({"p100": 4}, per_node=4), Reset())
    assert [size for _, _, size in run.leases("elastic")] == [1, 4]
