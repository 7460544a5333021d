"""Gandiva's grow-shrink: declared jobs use idle devices of their server until others want them."""

import math

from fairlead.mechanisms.gandiva.memory import GandivaJob
from fairlead.mechanisms.gandiva.servers import Servers
from fairlead.model.arrays import FloatArray


def resize(
    servers: Servers, changed_at: FloatArray, at: float, *, grow_after_s: float, idle: bool
) -> None:
    """Set the size of every elastic job: what its server has to spare, beyond its gang only late.

    A job shrinks at once when its server's devices are wanted. It grows beyond its gang only
    ``grow_after_s`` after the last job came to its server or left it, and only while the cluster
    has devices to spare (``idle``). Among several the one with most to gain comes first: measured
    steps per second for each device, as if one more were as good.
    """
    for server, units in enumerate(servers.units):
        tasks = [
            unit.tasks[0]
            for unit in units.values()
            if unit.tasks[0].elastic and len(unit.home) == 1
        ]
        if not tasks:
            continue
        spare = max(int(servers.size[server] - servers.load[server]), 0)
        quiet = idle and at - changed_at[server] >= grow_after_s - 1e-6
        sizes = _sizes(tasks, spare, quiet)
        for task in tasks:
            new = sizes[task.job]
            if new > task.size >= task.floor:
                task.grown_from, task.speed_before = task.size, task.current_speed
            if new != task.size:
                task.current_speed = math.nan
            task.size = float(new)
        servers.extra[server] = sum(sizes[task.job] - task.floor for task in tasks)


def _sizes(tasks: list[GandivaJob], spare: int, quiet: bool) -> dict[int, int]:
    sizes = {task.job: task.floor for task in tasks}

    def give(limit: dict[int, float]) -> None:
        nonlocal spare
        while spare:
            hungry = [task for task in tasks if sizes[task.job] < limit[task.job]]
            if not hungry:
                return
            best = min(hungry, key=lambda t: (sizes[t.job] / t.gang, -_speed_per_device(t), t.job))
            sizes[best.job] += 1
            spare -= 1

    most = {task.job: min(float(task.ceiling), task.enough) for task in tasks}
    give({task.job: min(float(task.gang), most[task.job]) for task in tasks})
    give({task.job: min(task.size, most[task.job]) for task in tasks})
    if quiet:
        give(most)
    return sizes


def _speed_per_device(task: GandivaJob) -> float:
    """Return measured steps per second for each device; 0 while nothing is known."""
    return (
        0.0 if math.isnan(task.current_speed) or not task.size else task.current_speed / task.size
    )


def learn(task: GandivaJob, speed: float, *, least_gain: float) -> None:
    """Note that growing was of no use where the speed did not rise with it."""
    if task.size > task.grown_from > 0 and speed <= (1.0 + least_gain) * task.speed_before:
        task.enough = task.grown_from
    if task.size > task.grown_from:
        task.grown_from, task.speed_before = 0.0, math.nan
