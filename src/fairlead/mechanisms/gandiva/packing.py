"""Gandiva's packing: tried in overload, kept where measured to pay, else undone (§4.2.2)."""

import math

from fairlead.mechanisms.gandiva.memory import GandivaJob, GandivaUnit
from fairlead.mechanisms.gandiva.servers import Servers
from fairlead.model.arrays import FloatArray

Measurements = dict[int, tuple[float, float, float]]
"""job → speed, utilisation and memory as measured since the last plan"""
Failed = set[tuple[int, int]]
"""pairs of jobs whose packing was undone"""


def conclude_trials(
    units: list[GandivaUnit], fresh: Measurements, failed: Failed
) -> list[GandivaUnit]:
    """Decide the trials whose jobs have all been measured; return units that are apart again.

    Speeds are counted over those measured alone, so that jobs of different workloads can be added
    up, and a job alone comes to 1.
    """
    undone = []
    for unit in units:
        if not all(task.job in fresh and task.best_speed > 0 for task in unit.tasks):
            continue
        unit.total = sum(fresh[task.job][0] / task.best_speed for task in unit.tasks)
        if not unit.joined:
            continue
        if unit.total <= unit.minimum_speed:
            came = unit.tasks[-unit.joined :]
            del unit.tasks[-unit.joined :]
            unit.total = math.nan
            for task in came:
                task.failures += 1
                failed |= {_pair(task.job, other.job) for other in unit.tasks}
            undone.append(GandivaUnit(came))
        unit.joined = 0
    return undone


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
    ready = [unit for unit in servers.all_units() if _ready(servers, unit)]
    ready.sort(key=lambda unit: (unit.utilization, unit.job))
    busy: set[int] = set()
    for unit in ready:
        if wanted <= 0:
            return
        if unit.job in busy or any(task.failures >= tries for task in unit.tasks):
            continue
        other = _target(servers, unit, ready, busy, memory_gib, failed)
        if other is not None:
            busy |= {unit.job, other.job}
            wanted -= unit.need
            k, n = len(other.tasks), len(unit.tasks)
            servers.remove_home(unit)
            other.minimum_speed = (k * other.total + n * unit.total) / (k + n)
            other.tasks += unit.tasks
            other.joined = n


def _ready(servers: Servers, unit: GandivaUnit) -> bool:
    """Return whether all jobs of a unit have been profiled where it is, and none is on trial."""
    accelerator = servers.accelerator[next(iter(unit.home))]
    return (
        not unit.joined
        and not math.isnan(unit.total)
        and all(_profiled(task, accelerator) for task in unit.tasks)
    )


def _profiled(task: GandivaJob, accelerator: int) -> bool:
    return (
        task.accelerator == accelerator and not math.isnan(task.utilization) and not task.elastic
    )


def _target(
    servers: Servers,
    unit: GandivaUnit,
    ready: list[GandivaUnit],
    busy: set[int],
    memory_gib: FloatArray,
    failed: Failed,
) -> GandivaUnit | None:
    """Return the least utilised unit that this one may join."""
    accelerator = servers.accelerator[next(iter(unit.home))]
    for other in ready:
        if (
            other is not unit
            and other.job not in busy
            and other.need == unit.need
            and other.rank == unit.rank
            and servers.accelerator[next(iter(other.home))] == accelerator
            and other.memory_gib + unit.memory_gib <= memory_gib[accelerator]
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
