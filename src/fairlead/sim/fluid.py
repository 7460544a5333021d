"""The fluid simulation: every job progresses by its exact shares."""

from typing import Any

import numpy as np

from fairlead.core import Scheduler
from fairlead.core.jobs import JobState
from fairlead.model.events import JobSubmitted, TenantChanged
from fairlead.sim.record import FIRST_STEPS, Record
from fairlead.sim.scenario import Scenario
from fairlead.sim.truth import Truth


def run_fluid(scenario: Scenario, record: Record) -> None:
    """Run a scenario with a fluid mechanism: no rounds, no devices, no cost of moving."""
    mechanism: Any = scenario.mechanism
    scheduler: Scheduler[Any] = Scheduler(
        scenario.cluster, scenario.believed or scenario.speeds, _Nothing()
    )
    for tenant in scenario.tenants:
        scheduler.handle(TenantChanged(0.0, tenant))
    true_speed = Truth(scenario.cluster, scenario.speeds, scenario.jobs).alone()
    jobs = scenario.jobs
    total = np.array([job.total_steps for job in jobs])
    gang = np.array([job.gang for job in jobs])
    done = np.zeros(len(jobs))
    first, last = scenario.window or (0, len(jobs))
    at, arrived = 0.0, 0
    table = scheduler.jobs
    while np.isnan(record.finished_at[first:last]).any():
        while arrived < len(jobs) and jobs[arrived].arrival_at <= at:
            scheduler.handle(JobSubmitted(at, jobs[arrived]))
            arrived += 1
        active = table.active
        next_arrival = jobs[arrived].arrival_at if arrived < len(jobs) else np.inf
        if not len(active):
            at = next_arrival
            continue
        table.steps[active] = done[active]
        share = mechanism.policy.allocate(scheduler.snapshot(at, at)).share
        record.solves += 1
        rate = (share * true_speed[active]).sum(axis=1)
        with np.errstate(divide="ignore"):
            finish = at + (total[active] - done[active]) / rate
        until = min(float(finish.min()), next_arrival)
        if not np.isfinite(until):
            return
        _advance(record, active, done, rate, at, until)
        record.device_s[active] += share * gang[active][:, None] * (until - at)
        at = until
        for job in active[finish <= until].tolist():
            record.finished_at[job] = at
            done[job] = total[job]
            table.end(job, JobState.FINISHED)
        if scenario.on_progress:
            scenario.on_progress(at, int(np.count_nonzero(~np.isnan(record.finished_at))))


def _advance(
    record: Record,
    active: np.ndarray,
    done: np.ndarray,
    rate: np.ndarray,
    at: float,
    until: float,
) -> None:
    before = done[active]
    after = before + rate * (until - at)
    fresh = np.isnan(record.started_at[active]) & (rate > 0)
    record.started_at[active[fresh]] = at
    crossed = (before < FIRST_STEPS) & (after >= FIRST_STEPS)
    record.first_steps_at[active[crossed]] = at + (FIRST_STEPS - before[crossed]) / rate[crossed]
    done[active] = after


class _Nothing:
    """A mechanism for a scheduler that is only asked for snapshots."""

    def initial(self) -> None:
        """Return no memory."""

    def plan(self, snap: object, memory: object) -> Any:
        """Never asked."""
        raise AssertionError(snap, memory)
