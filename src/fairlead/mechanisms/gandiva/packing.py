"""Gandiva's packing: tried in overload, kept where measured to pay, else undone (§4.2.2)."""

import math
from collections.abc import Sequence, Set

from fairlead.mechanisms.gandiva.memory import GandivaJob, GandivaUnit, Rank
from fairlead.mechanisms.gandiva.servers import Servers
from fairlead.model.arrays import FloatArray
from fairlead.model.snapshot import Snapshot
from fairlead.policies._packing.measured_pairs import pair_workloads

Measurements = dict[int, tuple[float, float, float]]
"""job → speed, utilisation and memory as measured since the last plan"""
Failed = set[tuple[int, int]]
"""pairs of jobs whose packing was undone"""


def conclude_trials(
    units: list[GandivaUnit], fresh: Measurements, failed: Failed
) -> list[GandivaUnit]:
    """Decide the trials whose jobs have all been measured; return units that are apart again.

    Speeds are counted over those measured alone, so that jobs of different workloads can be added
    up, and a job alone comes to 1. A unit in which a job makes no steps is undone even if it was
    kept before: on another accelerator, or with other members.
    """
    undone: list[GandivaUnit] = []
    for unit in units:
        if len(unit.tasks) == 1:  # most units; none is on trial
            task = unit.tasks[0]
            if task.job in fresh and task.best_speed > 0:
                unit.total = fresh[task.job][0] / task.best_speed
            continue
        if not unit.joined:
            stalled = [task for task in unit.tasks if _stalls(task, fresh)]
            if stalled:
                undone += _dissolve(unit, stalled, failed)
                continue
        speeds = [
            fresh[task.job][0] / task.best_speed
            for task in unit.tasks
            if task.job in fresh and task.best_speed > 0
        ]
        if len(speeds) < len(unit.tasks):
            continue
        unit.total = sum(speeds)
        if not unit.joined:
            continue
        if unit.total <= unit.minimum_speed or not all(speeds):
            came = unit.tasks[-unit.joined :]
            del unit.tasks[-unit.joined :]
            unit.total = math.nan
            for task in came:
                task.failures += 1
                failed |= {_pair(task.job, other.job) for other in unit.tasks}
            undone.append(GandivaUnit(came))
        unit.joined = 0
    return undone


def _stalls(task: GandivaJob, fresh: Measurements) -> bool:
    """Return whether a job that runs alone was measured to make no steps."""
    return task.job in fresh and fresh[task.job][0] == 0.0 and task.best_speed > 0.0


def _dissolve(unit: GandivaUnit, stalled: list[GandivaJob], failed: Failed) -> list[GandivaUnit]:
    """Take a unit apart whose jobs stall beside each other; the first one keeps the home."""
    for task in stalled:
        task.failures += 1
        failed |= {_pair(task.job, other.job) for other in unit.tasks if other is not task}
    left = unit.tasks[1:]
    del unit.tasks[1:]
    unit.total = math.nan
    return [GandivaUnit([task]) for task in left]


def unfit_pairs(snap: Snapshot) -> Failed:
    """Return the pairs of jobs whose workloads have run out of memory beside each other."""
    if snap.speeds is None:
        return set()
    unfit = [key for key, speed in snap.speeds.measured_pairs.items() if speed == 0.0]
    if not unfit:
        return set()
    names, jobs = pair_workloads(snap), dict[str, list[int]]()
    for job, profile in zip(snap.job.tolist(), snap.profile.tolist(), strict=True):
        jobs.setdefault(names[profile], []).append(job)
    return {
        _pair(one, other)
        for key in unfit
        for one in jobs.get(key.workload, ())
        for other in jobs.get(key.partner or "", ())
        if one != other
    }


def start_trials(servers: Servers, memory_gib: FloatArray, failed: Failed, *, tries: int) -> None:
    """Pack jobs on trial, the least utilised first, each onto the least utilised devices.

    Only during overload, and only as many as it takes to end it. Jobs must have been measured
    alone on that accelerator, have equal gangs, and fit into its memory together; units of
    several jobs join others as a whole. A job whose packing was undone ``tries`` times is left
    alone.

    Packing pays when it is faster than time-slicing: units of k and l jobs with totals s and t
    would take turns in proportion to their jobs, which comes to (k·s + l·t) / (k + l).
    """
    wanted = servers.overload
    if not wanted:
        return
    accelerators = servers.accelerator.tolist()
    ready = [unit for unit in servers.all_units() if _ready(accelerators, unit)]
    ready.sort(key=lambda unit: (unit.utilization, unit.job))
    alike: dict[tuple[int, Rank, int], list[GandivaUnit]] = {}
    for unit in ready:
        alike.setdefault(_group(accelerators, unit), []).append(unit)
    busy: set[int] = set()
    for unit in ready:
        if wanted <= 0:
            return
        if unit.job in busy or any(task.failures >= tries for task in unit.tasks):
            continue
        group = _group(accelerators, unit)
        other = _target(unit, alike[group], busy, memory_gib[group[-1]], failed)
        if other is not None:
            busy |= {unit.job, other.job}
            wanted -= unit.need
            k, n = len(other.tasks), len(unit.tasks)
            servers.remove_home(unit)
            other.minimum_speed = (k * other.total + n * unit.total) / (k + n)
            other.tasks += unit.tasks
            other.joined = n


def _ready(accelerators: Sequence[int], unit: GandivaUnit) -> bool:
    """Return whether all jobs of a unit have been profiled where it is, and none is on trial."""
    if unit.joined or math.isnan(unit.total) or math.isnan(unit.tasks[0].utilization):
        return False
    accelerator = accelerators[next(iter(unit.home))]
    return all(_profiled(task, accelerator) for task in unit.tasks)


def _group(accelerators: Sequence[int], unit: GandivaUnit) -> tuple[int, Rank, int]:
    """Return what units that may be packed have in common: gang, rank and accelerator."""
    return unit.need, unit.rank, accelerators[next(iter(unit.home))]


def _profiled(task: GandivaJob, accelerator: int) -> bool:
    return (
        task.accelerator == accelerator and not math.isnan(task.utilization) and not task.elastic
    )


def _target(
    unit: GandivaUnit,
    alike: Sequence[GandivaUnit],
    busy: Set[int],
    memory_gib: float,
    failed: Failed,
) -> GandivaUnit | None:
    """Return the least utilised unit that this one may join."""
    own_gib = unit.memory_gib
    for other in alike:
        if (
            other is not unit
            and other.job not in busy
            and other.memory_gib + own_gib <= memory_gib
            and not any(_pair(a.job, b.job) in failed for a in unit.tasks for b in other.tasks)
        ):
            return other
    return None


def unpack(servers: Servers, fresh: Measurements, *, loss: float) -> None:
    """Give packed jobs that lose by it devices of their own, once some are free again."""
    if servers.overload:
        return
    free = servers.size - servers.load - servers.extra
    for unit in list(servers.all_units()):
        task = unit.tasks[-1]
        if len(unit.tasks) < 2 or unit.joined or task.job not in fresh:
            continue
        accelerator = servers.accelerator[next(iter(unit.home))]
        good = (servers.accelerator == accelerator) & (free >= unit.need)
        if fresh[task.job][0] < (1.0 - loss) * task.best_speed and good.any():
            unit.tasks.pop()
            unit.total = math.nan
            server = int(good.argmax())
            servers.join_home(GandivaUnit([task]), {server: unit.need})
            free[server] -= unit.need


def _pair(one: int, other: int) -> tuple[int, int]:
    """Return two jobs, the smaller number first."""
    return (one, other) if one < other else (other, one)
