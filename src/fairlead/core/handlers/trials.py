"""Exploration: the work that workloads have left, against which trials are weighed."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from fairlead.core.jobs import PROFILE, STEPS, TOTAL
from fairlead.core.scheduler_state import SchedulerState
from fairlead.model.speeds.key import SpeedKey
from fairlead.model.speeds.planned import MAX_DOUBLINGS, MAX_TRIALS, Trials


def update_trials(state: SchedulerState[Any], round_s: float) -> None:
    """Weigh trials against the work left now; nothing changes where exploration is off."""
    if state.beliefs.trials is None:
        return
    rounds = _rounds_left(state, round_s)
    doublings = {workload: _doublings(count) for workload, count in rounds.items()}
    trials = Trials(
        {workload: power for workload, power in sorted(doublings.items()) if power},
        _rounds_in_vain(state, rounds),
    )
    if trials != state.trials:
        state.use_trials(trials)
        state.changes += 1


def _rounds_left(state: SchedulerState[Any], round_s: float) -> dict[str, float]:
    """Return workload → rounds that a tenant's jobs of it need, one job after the other.

    Counts the fastest accelerator of each job by the medians of estimates: with the speeds that
    trials raise, the work left would depend on its own result.
    """
    jobs, beliefs = state.jobs, state.beliefs.medians
    admission = jobs.admission.with_speeds(beliefs, state.capabilities)
    rows = jobs.numbers[jobs.active]
    profiles, first, of = np.unique(
        jobs.ints[jobs.active, PROFILE], return_index=True, return_inverse=True
    )
    left = np.bincount(of, np.maximum(rows[:, TOTAL] - rows[:, STEPS], 0.0), len(profiles))
    rounds: dict[tuple[str, str], float] = {}
    for number, steps in zip(jobs.active[first].tolist(), left.tolist(), strict=True):
        job = jobs.jobs[number]
        speed, key = admission.best_speed(job), (beliefs.workload_of(job), job.tenant)
        rounds[key] = rounds.get(key, 0.0) + (steps / (speed * round_s) if speed > 0.0 else 0.0)
    most: dict[str, float] = {}
    for (workload, _), count in rounds.items():
        most[workload] = max(count, most.get(workload, 0.0))
    return most


def _doublings(rounds: float) -> int:
    """Return the logarithm, to base 2, of a number of rounds, rounded down."""
    return min(max(math.frexp(rounds)[1] - 1, 0), MAX_DOUBLINGS)


def _rounds_in_vain(state: SchedulerState[Any], present: Iterable[str]) -> dict[SpeedKey, int]:
    """Return the rounds of present workloads on accelerators that brought no measured speed."""
    jobs, beliefs, names = state.jobs, state.beliefs, state.cluster.accelerators
    running: set[SpeedKey] = set()
    for number in state.leases.job[state.leases.active_slots].tolist():
        job, accelerator = jobs.jobs[number], jobs.on.item(number)
        if accelerator >= 0:
            name = names[accelerator]
            running.add(SpeedKey(beliefs.workload_of(job), job.gang_on(name), name))
    workloads = frozenset(present)
    vain = {key: count for key, count in state.trials.vain.items() if key.workload in workloads}
    vain |= {key: min(vain.get(key, 0) + 1, MAX_TRIALS) for key in sorted(running)}
    return {
        key: count
        for key, count in vain.items()
        if beliefs.source_of(key.workload, key.gang, key.accelerator) == "assumed"
    }
