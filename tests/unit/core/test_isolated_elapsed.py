"""The scheduler tracks the time that each job's steps would have taken on an equal split."""

from typing import Any

import numpy as np
import pytest

from fairlead.core import Scheduler
from fairlead.mechanisms.shares import Shares
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Command, ComputePlan, Launch
from fairlead.model.job import Job
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.policies.base import effective_speed
from fairlead.policies.finish_time import FinishTime
from fairlead.policies.isolated import Isolated
from fairlead.policies.max_min import MaxMin

SPEEDS = SpeedTable(
    {
        SpeedKey("m", 1, "fast"): 6.0,
        SpeedKey("m", 1, "slow"): 2.0,
        SpeedKey("m", 2, "fast"): 10.0,
        SpeedKey("m", 2, "slow"): 3.0,
    }
)


class Run:
    """A scheduler whose plans are applied at once."""

    def __init__(self, policy: Any, *gangs: int) -> None:
        self.scheduler: Scheduler[Any] = Scheduler(
            Cluster.of({"fast": 2, "slow": 1}), SPEEDS, Shares(policy)
        )
        for i, gang in enumerate(gangs):
            job = Job(id=str(i), workload="m", total_steps=1e6, gang=gang)
            self.scheduler.handle(ev.JobSubmitted(0.0, job))
        self.lease: dict[int, int] = {}
        for command in self.scheduler.handle(ev.PlanDue(0.0)):
            self._perform(command)

    def _perform(self, command: Command) -> None:
        if isinstance(command, ComputePlan):
            plan, memory = self.scheduler.mechanism.plan(command.snapshot, command.memory)
            ready = ev.PlanReady(0.0, command.version, plan, memory)
            for next_command in self.scheduler.handle(ready):
                self._perform(next_command)
        if isinstance(command, Launch):
            self.lease.update(zip(command.on.job.tolist(), command.lease.tolist(), strict=True))

    def progress(self, job: int, steps: float) -> None:
        lease = np.array([self.lease[job]])
        self.scheduler.handle(ev.Progress(1.0, lease, np.array([steps])))

    def snapshot(self) -> Snapshot:
        return self.scheduler.snapshot(1.0, 1.0)

    def isolated_speed(self) -> Any:
        """Return jobs → speed under the policy that splits the cluster evenly."""
        snap = self.snapshot()
        return effective_speed(snap, Isolated().allocate(snap))


@pytest.mark.parametrize("gangs", [(1,), (1, 1), (1, 2, 1), (2, 1, 1, 1, 1)])
def test_steps_count_at_the_speed_of_an_equal_split(gangs: tuple[int, ...]) -> None:
    run = Run(FinishTime(), *gangs)
    job = min(run.lease)
    run.progress(job, 120.0)
    elapsed = run.snapshot().isolated_elapsed_s
    assert elapsed[job] == pytest.approx(120.0 / run.isolated_speed()[job], rel=1e-12)
    assert (np.delete(elapsed, job) == 0).all()


def test_each_interval_counts_the_jobs_active_in_it() -> None:
    run = Run(FinishTime(), 1, 1, 1)
    job = min(run.lease)
    among_three = run.isolated_speed()[job]
    run.progress(job, 60.0)
    for i in range(3, 9):
        new = Job(id=str(i), workload="m", total_steps=1e6, arrival_at=1.0)
        run.scheduler.handle(ev.JobSubmitted(1.0, new))
    among_nine = run.isolated_speed()[job]
    run.progress(job, 80.0)
    expected = 60.0 / among_three + 20.0 / among_nine
    assert among_nine < among_three
    assert run.snapshot().isolated_elapsed_s[job] == pytest.approx(expected, rel=1e-12)


def test_lost_steps_are_subtracted() -> None:
    run = Run(FinishTime(), 1, 1, 1)
    job = min(run.lease)
    run.progress(job, 60.0)
    lease = np.array([run.lease[job]])
    run.scheduler.handle(ev.LeasesEnded(2.0, lease, np.array([45.0]), "lost"))
    elapsed = run.snapshot().isolated_elapsed_s[job]
    assert elapsed == pytest.approx(45.0 / run.isolated_speed()[job], rel=1e-12)


def test_no_time_is_tracked_for_a_policy_that_reads_no_progress() -> None:
    run = Run(MaxMin(), 1, 1, 1)
    job = min(run.lease)
    lease = np.array([run.lease[job]])
    run.scheduler.handle(ev.LeasesEnded(2.0, lease, np.array([45.0]), "left"))
    snap = run.snapshot()
    assert snap.steps[job] == 45.0
    assert (snap.isolated_elapsed_s == 0).all()


def test_snapshot_without_the_column_has_zeros() -> None:
    snap = Run(FinishTime(), 1, 1).snapshot()
    fields = {name: getattr(snap, name) for name in Snapshot.__dataclass_fields__}
    del fields["isolated_elapsed_s"]
    assert Snapshot(**fields).isolated_elapsed_s.tolist() == [0.0, 0.0]
