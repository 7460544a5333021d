"""The fluid simulation: every unit progresses by its exact shares."""

from typing import Any

import numpy as np

from fairlead.core import Scheduler
from fairlead.core.jobs import JobState
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import UsageError
from fairlead.model.events import JobSubmitted, TenantChanged
from fairlead.model.snapshot import gangs_by_accelerator
from fairlead.policies.base import WarmStart, accelerator_columns, allocate
from fairlead.sim.physics.true_speeds import Truth
from fairlead.sim.record import FIRST_STEPS, Record
from fairlead.sim.scenario import Scenario


def run_fluid(scenario: Scenario, record: Record) -> None:
    """Run a scenario with a fluid mechanism: no rounds, no devices, no cost of moving."""
    mechanism: Any = scenario.mechanism
    scheduler: Scheduler[Any] = Scheduler(
        scenario.cluster, scenario.believed or scenario.speeds, _NoPlan(mechanism)
    )
    for tenant in scenario.tenants:
        scheduler.handle(TenantChanged(0.0, tenant))
    pace, warm = _Pace(scenario), WarmStart()
    jobs = scenario.jobs
    total = np.array([job.total_steps for job in jobs])
    done = np.zeros(len(jobs))
    first, last = scenario.window or (0, len(jobs))
    at, arrived = 0.0, 0
    table = scheduler.jobs
    while np.isnan(record.finished_at[first:last]).any():
        while arrived < len(jobs) and jobs[arrived].arrival_at <= at:
            scheduler.handle(JobSubmitted(at, jobs[arrived]))
            record.ended_at = at
            arrived += 1
        active = table.active
        next_arrival = jobs[arrived].arrival_at if arrived < len(jobs) else np.inf
        if not len(active):
            at = next_arrival
            continue
        table.advance(active, done[active], scenario.cluster.counts)
        allocation = allocate(mechanism.policy, scheduler.snapshot(at, at), warm)
        record.solves += 1
        rate, devices = pace.of(allocation, active)
        with np.errstate(divide="ignore"):
            finish = at + (total[active] - done[active]) / rate
        until = min(float(finish.min()), next_arrival)
        if not np.isfinite(until):
            return
        _advance(record, active, done, total, rate, at, until)
        record.device_s[active] += devices * (until - at)
        at = record.ended_at = until
        for job in active[finish <= until].tolist():
            record.finished_at[job] = at
            done[job] = total[job]
            table.end(job, JobState.FINISHED)
        if scenario.on_progress:
            scenario.on_progress(at, int(np.count_nonzero(~np.isnan(record.finished_at))))


class _Pace:
    """What allocations come to at true speeds."""

    def __init__(self, scenario: Scenario) -> None:
        self._truth = Truth(scenario.cluster, scenario.speeds, scenario.jobs)
        self._alone = self._truth.alone()
        kinds = scenario.cluster.accelerators
        self._kinds = len(kinds)
        gang = gangs_by_accelerator(scenario.jobs, kinds)
        self._gang = np.broadcast_to(gang, (len(gang), len(kinds)))

    def of(self, allocation: Allocation, active: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return jobs → steps per second, and jobs × accelerators → devices held on average.

        A device shared by n jobs counts 1/n for each.
        """
        if allocation.rows != "jobs" or allocation.measure != "time":
            raise UsageError(
                f"ideal realises time shares of jobs, not {allocation.measure} of"
                f" {allocation.rows}; choose another --mechanism"
            )
        members, share = allocation.members, allocation.share
        if members.shape[1] == 1 and allocation.columns == accelerator_columns(self._kinds):
            rate: FloatArray = (share * self._alone[active]).sum(axis=1)
            return rate, share * self._gang[active]
        rate, devices = np.zeros(len(active)), np.zeros((len(active), self._kinds))
        for row, column in zip(*(share > 0).nonzero(), strict=True):
            unit = members[row][members[row] >= 0].tolist()
            kind, placement = allocation.columns[column]
            time = share[row, column]
            for job in unit:
                at = np.searchsorted(active, job)
                others = [other for other in unit if other != job]
                rate[at] += time * self._truth.speed_on(job, kind, placement, others)
                devices[at, kind] += time * self._gang[job, kind] / len(unit)
        return rate, devices


def _advance(
    record: Record,
    active: np.ndarray,
    done: np.ndarray,
    total: np.ndarray,
    rate: np.ndarray,
    at: float,
    until: float,
) -> None:
    before = done[active]
    after = before + rate * (until - at)
    goal = np.minimum(FIRST_STEPS, total[active])
    fresh = np.isnan(record.started_at[active]) & (rate > 0)
    record.started_at[active[fresh]] = at
    with np.errstate(divide="ignore", invalid="ignore"):
        made_at = at + (goal - before) / rate
    # A job that ends has made its total, whatever the last bits of its steps say.
    crossed = (before < goal) & ((after >= goal) | (made_at <= until))
    record.first_steps_at[active[crossed]] = made_at[crossed]
    done[active] = after


class _NoPlan:
    """A mechanism for a scheduler that is only asked for snapshots."""

    def __init__(self, mechanism: Any) -> None:
        self.takes_alternatives = getattr(mechanism, "takes_alternatives", False)

    def initial(self) -> None:
        """Return no memory."""

    def plan(self, snap: object, memory: object) -> Any:
        """Never asked."""
        raise AssertionError(snap, memory)
