"""Fluid simulation: every unit progresses continuously by its exact shares."""

from typing import Any

import numpy as np

from fairlead.core import Scheduler
from fairlead.core.jobs import JobState
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.capabilities import capabilities_of
from fairlead.model.errors import UsageError
from fairlead.model.events import JobSubmitted, TenantChanged
from fairlead.model.snapshot import gangs_by_accelerator
from fairlead.policies.base import WarmStart, accelerator_columns, allocate
from fairlead.sim.physics.true_speeds import TrueSpeeds
from fairlead.sim.record import FIRST_STEPS, Record
from fairlead.sim.scenario import Scenario


def run_fluid(scenario: Scenario, record: Record) -> None:
    """Run a scenario with a fluid mechanism: no rounds, no placement, no migration cost."""
    mechanism: Any = scenario.mechanism
    scheduler: Scheduler[Any] = Scheduler(
        scenario.cluster, scenario.believed or scenario.speeds, _NoPlan(mechanism)
    )
    for tenant in scenario.tenants:
        scheduler.handle(TenantChanged(0.0, tenant))
    rates, warm = _FluidRates(scenario), WarmStart()
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
        rate, devices = rates.of(allocation, active)
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
            table.deactivate(job, JobState.FINISHED)
        if scenario.on_progress:
            scenario.on_progress(at, int(np.count_nonzero(~np.isnan(record.finished_at))))


class _FluidRates:
    """Progress rates that allocations give at true speeds."""

    def __init__(self, scenario: Scenario) -> None:
        self._true_speeds = TrueSpeeds(scenario.cluster, scenario.speeds, scenario.jobs)
        self._solo = self._true_speeds.solo_speeds()
        accelerators = scenario.cluster.accelerators
        self._n_accelerators = len(accelerators)
        gang = gangs_by_accelerator(scenario.jobs, accelerators)
        self._gang = np.broadcast_to(gang, (len(gang), len(accelerators)))

    def of(self, allocation: Allocation, active: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return jobs → steps per second, and jobs × accelerators → devices held on average.

        A device shared by n jobs counts 1/n for each.
        """
        if allocation.rows != "jobs" or allocation.measure != "time":
            raise UsageError(
                f"--mechanism: ideal cannot realise {allocation.measure} of {allocation.rows}:"
                " expected a policy with time shares of jobs"
            )
        members, share = allocation.members, allocation.share
        if members.shape[1] == 1 and allocation.columns == accelerator_columns(
            self._n_accelerators
        ):
            rate: FloatArray = (share * self._solo[active]).sum(axis=1)
            return rate, share * self._gang[active]
        rate, devices = np.zeros(len(active)), np.zeros((len(active), self._n_accelerators))
        for row, column in zip(*(share > 0).nonzero(), strict=True):
            unit = members[row][members[row] >= 0].tolist()
            accelerator, placement = allocation.columns[column]
            time = share[row, column]
            for job in unit:
                at = np.searchsorted(active, job)
                others = [other for other in unit if other != job]
                rate[at] += time * self._true_speeds.speed_on(job, accelerator, placement, others)
                devices[at, accelerator] += time * self._gang[job, accelerator] / len(unit)
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
    # A job that ends at ``until`` has made its total, despite rounding errors in its steps.
    crossed = (before < goal) & ((after >= goal) | (made_at <= until))
    record.first_steps_at[active[crossed]] = made_at[crossed]
    done[active] = after


class _NoPlan:
    """Mechanism of a scheduler that only builds snapshots and never plans."""

    def __init__(self, mechanism: Any) -> None:
        self.capabilities = capabilities_of(mechanism)

    def initial(self) -> None:
        """Return no memory."""

    def plan(self, snap: object, memory: object) -> Any:
        """Fail: the fluid simulation never plans."""
        raise AssertionError(snap, memory)
