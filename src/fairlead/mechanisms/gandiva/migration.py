"""Gandiva's migrations: to vacated devices, to one server, away from neighbours, together."""

import math

import numpy as np

from fairlead.mechanisms.gandiva.memory import GandivaUnit, Home
from fairlead.mechanisms.gandiva.servers import Servers
from fairlead.model.arrays import BoolArray, IntArray


def move_to_vacated(servers: Servers, running: set[int]) -> None:
    """Lower the height of the cluster: move units from the most loaded servers to others.

    A move is made where the destination's load stays below what the source's was, so that the
    greater of the two falls. Suspended jobs move first, for they lose nothing by it.
    """
    stuck = np.zeros(len(servers.size), dtype=bool)
    while True:
        ratio = servers.load / np.maximum(servers.size, 1)
        over = (servers.load > servers.size) & (servers.size > 0) & ~stuck
        if not over.any():
            return
        source = int(np.where(over, ratio, -1.0).argmax())
        if not _move_one(servers, source, running):
            stuck[source] = True


def _move_one(servers: Servers, source: int, running: set[int]) -> bool:
    before = servers.load[source] / servers.size[source]
    there = [unit for unit in servers.units[source].values() if not unit.joined]
    there.sort(key=lambda u: (any(t.job in running for t in u.tasks), u.pass_s, u.job))
    tried: set[tuple[int, int]] = set()
    for unit in there:
        need = unit.need
        demand = need, servers.accelerators(unit)
        if len(unit.home) > 1 or demand in tried:
            continue
        tried.add(demand)
        after = (servers.load + need) / np.maximum(servers.size, 1)
        good = servers.runs(unit) & (servers.size >= need) & (after < before - 1e-9)
        good[source] = False
        if good.any():
            servers.move(unit, {int(np.where(good, after, np.inf).argmin()): need})
            return True
    return False


def consolidate_units(servers: Servers) -> None:
    """Bring units on several servers onto fewer, where devices are free (§4.2.2, Figure 8)."""
    for unit in list(servers.all_units()):
        if len(unit.home) < 2:
            continue
        free = servers.size - servers.load
        for server, count in unit.home.items():
            free[server] += count
        accelerator = servers.accelerator[next(iter(unit.home))]
        there = np.array([unit.home.get(s, 0) for s in range(len(free))])
        home = _fewest(unit.need, (servers.accelerator == accelerator) & (free > 0), free, there)
        if home is not None and len(home) < len(unit.home):
            servers.move(unit, home)


def _fewest(need: int, allowed: BoolArray, free: IntArray, there: IntArray) -> Home | None:
    """Return few servers with so many free devices: one if possible, where it already is."""
    fits = (allowed & (free >= need)).nonzero()[0]
    if len(fits):
        best = min(fits.tolist(), key=lambda s: (-int(there[s]), int(free[s]), s))
        return {best: need}
    home: Home = {}
    for server in sorted(allowed.nonzero()[0].tolist(), key=lambda s: (-int(free[s]), s)):
        home[server] = min(need - sum(home.values()), int(free[server]))
        if sum(home.values()) == need:
            return home
    return None


def move_from_neighbours(servers: Servers, at: float, *, loss: float, settle_s: float) -> None:
    """Move jobs that were measured to suffer from neighbours to where fewer are.

    A job suffers when it is slower by ``loss`` than the best that was measured of it on this
    accelerator, alone on its devices and in one server. Whether a move was right shows in the next
    measurement; a job is not moved again before ``settle_s``.
    """
    for unit in list(servers.all_units()):
        task = unit.tasks[0]
        suffers = task.current_speed < (1.0 - loss) * task.best_speed
        if not suffers or len(unit.tasks) > 1 or len(unit.home) > 1 or task.elastic:
            continue
        (server,) = unit.home
        if servers.accelerator[server] != task.accelerator:
            continue
        if len(servers.units[server]) < 2 or at - task.moved_at < settle_s:
            continue
        others = servers.load[server] - unit.need
        good = (servers.accelerator == servers.accelerator[server]) & (servers.load < others)
        good &= servers.size - servers.load >= unit.need
        if good.any():
            task.moved_at, task.apart, task.current_speed = at, 1.0, math.nan
            servers.move(unit, {int(np.where(good, servers.load, np.inf).argmin()): unit.need})


def defragment(servers: Servers, *, part: float) -> None:
    """Empty servers that are mostly free, so that coming gangs find devices in one place.

    The non-idle server with most free devices gives its jobs to servers of the same accelerator
    with fewer free ones, until less than ``part`` of every non-idle server is free. Jobs that
    had to be moved away from neighbours, and their new servers, are left alone.
    """
    passed = np.zeros(len(servers.size), dtype=bool)
    while True:
        free = servers.size - servers.load
        mostly = (servers.load > 0) & (free >= part * servers.size) & (servers.size > 1)
        mostly &= ~passed
        if not mostly.any():
            return
        source = int(np.where(mostly, free, -1).argmax())
        passed[source] = True
        if _has_no_displaced_job(servers, source):
            for unit in list(servers.units[source].values()):
                _move_elsewhere(servers, unit, source)


def _move_elsewhere(servers: Servers, unit: GandivaUnit, source: int) -> None:
    if len(unit.home) > 1 or any(task.elastic for task in unit.tasks):
        return
    free = servers.size - servers.load
    good = (
        (servers.accelerator == servers.accelerator[source])
        & (free >= unit.need)
        & (servers.load > 0)
    )
    good &= free <= free[source]
    good[source] = False
    targets = [s for s in good.nonzero()[0].tolist() if _has_no_displaced_job(servers, s)]
    if targets:
        servers.move(unit, {min(targets, key=lambda s: (int(free[s]), s)): unit.need})


def _has_no_displaced_job(servers: Servers, server: int) -> bool:
    """Return whether no job of a server had to be moved away from neighbours."""
    return not any(task.apart for unit in servers.units[server].values() for task in unit.tasks)
