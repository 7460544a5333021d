"""Selects jobs to migrate: to even out load or where their tenant gains most (§3.5)."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from fairlead.compiled import compiled
from fairlead.mechanisms.gandiva_fair.allocation import SpeedKnowledge, choose_sites
from fairlead.mechanisms.gandiva_fair.gang_contention import JobDemand, SiteLoad, site_loads
from fairlead.mechanisms.gandiva_fair.memory import NOWHERE
from fairlead.mechanisms.gandiva_fair.node_assignment import JobHomes
from fairlead.model.arrays import BoolArray, FloatArray, IntArray

_EQUAL = 1e-9
_SWAP = 1.5
"""jobs swap when one tenant's tickets are raised by this factor more than the other's"""


class Move(NamedTuple):
    """A job that would gain from another home, and the accelerator of that home."""

    gain: float
    """relative gain of the job, or of the worse served of two nodes"""
    row: int
    accelerator: int
    site: int = NOWHERE
    """NOWHERE: where Algorithm 2 puts it"""
    back: int = -1
    """a row that moves the other way; -1: none"""


def migrate(homes: JobHomes, known: SpeedKnowledge, threshold: float, most: int) -> bool:
    """Move up to ``most`` jobs, the best gain first, each gain above the threshold.

    Return whether any has moved.
    """
    moved = np.zeros(len(homes.home), dtype=bool)
    for _ in range(most):
        moves = [*between_nodes(homes), *between_accelerators(homes, known, ~moved)]
        if not _perform_best(homes, moves, threshold, moved):
            break
    return bool(moved.any())


def migrate_traded(
    homes: JobHomes, known: SpeedKnowledge, threshold: float, tenant: int, most: int
) -> None:
    """Move up to ``most`` jobs of a party of a trade to the accelerator it gained."""
    moved = np.zeros(len(homes.home), dtype=bool)
    for _ in range(most):
        moves = between_accelerators(homes, known, ~moved & (homes.tenant == tenant))
        if not _perform_best(homes, list(moves), threshold, moved):
            return


def _perform_best(
    homes: JobHomes, moves: Collection[Move], threshold: float, moved: BoolArray
) -> bool:
    # A job that has just moved would only move back: what it gains was known before.
    moves = [move for move in moves if move.gain > threshold and not moved[move.row]]
    if not moves:
        return False
    best = max(moves, key=lambda move: (round(move.gain, 9), -move.row))
    row, gang, left = best.row, int(homes.gang[best.row]), int(homes.home[best.row])
    homes.clear_home(row)
    here = best.site == NOWHERE
    homes.set_home(row, choose_sites(homes, row, best.accelerator) if here else {best.site: gang})
    moved[row] = True
    if best.back >= 0:
        homes.clear_home(best.back)
        homes.set_home(best.back, {left: gang})
        moved[best.back] = True
    return True


def between_nodes(homes: JobHomes) -> Iterator[Move]:
    """Give, for each accelerator, the best moves between two of its sites.

    One goes from the most to the least loaded site; the gain is by how much the worse served of
    the two improves, where a load up to 1 serves all. Another fills devices that a large gang
    leaves idle when it does not run (§3.3), from a site that can spare a job; the gain is the
    part of the site's devices that this puts to use. The third lets a job of a tenant that has
    missed much change places with an equal one of a tenant that had too much.
    """
    several = [accelerator for accelerator, up in enumerate(homes.up) if len(up) > 1]
    if several:
        tickets = homes.job_tickets()
        for accelerator in several:
            loads = site_loads(homes, accelerator, tickets)
            yield from _load_levelling_moves(homes, accelerator, loads, tickets)
            yield from _gap_filling_moves(homes, accelerator, loads, tickets)
            yield from _swap_moves(homes, accelerator, loads)


def _load_levelling_moves(
    homes: JobHomes, accelerator: int, loads: Mapping[int, SiteLoad], tickets: FloatArray
) -> Iterator[Move]:
    load = {site: round(site_load.load, 9) for site, site_load in loads.items()}
    hot = max(load, key=lambda site: (load[site], -site))
    cool = min(load, key=lambda site: (load[site], site))
    rows = ((homes.home == hot) & (homes.gang <= loads[cool].size)).nonzero()[0]
    if load[hot] <= 1.0 or not len(rows):
        return
    parts = [JobDemand(int(homes.gang[row]), float(tickets[row])) for row in rows.tolist()]
    by_part = {}
    for one in dict.fromkeys(parts):
        worst = max(loads[hot].without(one).load, loads[cool].joined(one).load, 1.0)
        by_part[one] = load[hot] / worst - 1.0
    gain = np.array([by_part[one] for one in parts])
    best = int(rows[_argmax_with_ties(gain, homes.snap.lease[rows] >= 0, -rows)])
    yield Move(float(gain.max()), best, accelerator, cool)


def _gap_filling_moves(
    homes: JobHomes, accelerator: int, loads: Mapping[int, SiteLoad], tickets: FloatArray
) -> Iterator[Move]:
    gap = {site: site_load.gap for site, site_load in loads.items() if site_load.gap > 0}
    if not gap:
        return
    site = max(gap, key=lambda site: (gap[site] * loads[site].idle, -site))
    able = (homes.accelerator == accelerator) & (homes.home >= 0) & (homes.home != site)
    rows = (able & (homes.gang <= gap[site])).nonzero()[0]
    for row in rows[np.lexsort((rows, homes.snap.lease[rows] >= 0, -homes.gang[rows]))].tolist():
        there = int(homes.home[row])
        one = JobDemand(int(homes.gang[row]), float(tickets[row]))
        left, full = loads[there].without(one), loads[site].joined(one)
        spares = left.gangs >= left.size and left.gap <= loads[there].gap
        if spares and full.load <= max(loads[site].load, loads[there].load) + _EQUAL:
            yield Move(one.gang * loads[site].idle / full.size, row, accelerator, site)
            return


def _swap_moves(
    homes: JobHomes, accelerator: int, loads: Mapping[int, SiteLoad]
) -> Iterator[Move]:
    owing = homes.owing[:, accelerator]
    if owing.max() <= owing.min() * _SWAP:
        return
    load = np.full(len(homes.sites), np.nan)
    load[list(loads)] = [site_load.load for site_load in loads.values()]
    rows = ((homes.accelerator == accelerator) & (homes.home >= 0)).nonzero()[0]
    factor, here = owing[homes.tenant[rows]], load[homes.home[rows]]
    for gang in np.unique(homes.gang[rows]).tolist():
        same = homes.gang[rows] == gang
        worst = rows[same][
            _argmax_with_ties(np.where(here[same] > 1.0, factor[same], 0.0), rows[same])
        ]
        better = same & (here < load[homes.home[worst]] * (1 - _EQUAL))
        if not better.any():
            continue
        lucky = rows[better][_argmax_with_ties(-factor[better], rows[better])]
        gain = owing[homes.tenant[worst]] / owing[homes.tenant[lucky]]
        if gain > _SWAP:
            yield Move(
                float(gain) - 1.0, int(worst), accelerator, int(homes.home[lucky]), int(lucky)
            )


def between_accelerators(homes: JobHomes, known: SpeedKnowledge, may: BoolArray) -> Iterator[Move]:
    """Give the best move of a job to another accelerator, of those that may move.

    The job must not get slower; the gain is the greater of its own and its tenant's. A profile
    whose jobs share devices also tries an accelerator on which it has never run.
    """
    n_accelerators = len(homes.pools)
    at_home = ((homes.accelerator >= 0) & may).nonzero()[0]
    code = homes.profile[at_home] * n_accelerators + homes.accelerator[at_home]
    groups = np.bincount(code).nonzero()[0]
    if not len(groups):
        return
    gains = _gains(homes, known, *np.divmod(groups, n_accelerators), groups)
    best = (0.0, -1)
    for place in (gains.ravel() > _EQUAL).nonzero()[0].tolist():
        gain = float(gains.ravel()[place])
        if gain > best[0] + _EQUAL:
            best = gain, place
    gain, place = best
    if place >= 0:
        group, accelerator = divmod(place, n_accelerators)
        rows = at_home[code == groups[group]]
        yield Move(gain, _from_fullest(homes, rows), accelerator)


def _gains(
    homes: JobHomes, known: SpeedKnowledge, profile: IntArray, source: IntArray, present: IntArray
) -> FloatArray:
    """Return groups × accelerators → what a job, or its tenant, would gain there; 0 for nothing.

    A group is the jobs of one profile with a home on one accelerator, its source.
    """
    profiles, n_accelerators = homes.snap.profiles, len(homes.pools)
    tenant, gang = profiles.tenant[profile], profiles.gang[profile]
    due, demand = homes.entitled_devices(), homes.demands()
    there, entitled = _prospects(homes, tenant.tolist(), gang.tolist())
    if compiled is not None:
        gains = np.empty((len(profile), n_accelerators))
        compiled.migration_gains(
            *(homes.accelerator, homes.profile, profile, source, profiles.tenant, profiles.gang),
            *(known.seen.astype(np.int64), homes.snap.capacity, known.speed, due, demand),
            *(there, entitled, gains),
        )
        return gains
    group = np.arange(len(profile))
    speed, seen = known.speed[profile], known.seen[profile]
    total = _totals(homes, known)
    here = speed[group, source]
    can = (speed > 0) & seen[group, source][:, None] & (homes.snap.capacity >= gang[:, None])
    can[group, source] = False
    gets, wants = due[tenant], demand[tenant]
    due_here, demand_here = gets[group, source], wants[group, source]
    time = due_here / demand_here
    with np.errstate(divide="ignore", invalid="ignore"):
        own = speed * there / (here * time)[:, None] - 1.0
        lost = due_here - np.minimum(entitled[group, source], demand_here - gang)
        won = np.minimum(entitled, wants + gang[:, None]) - gets
        change = (won * speed - (lost * here)[:, None]) / speed.max(axis=1)[:, None]
        gain = np.where(own < -_EQUAL, 0.0, np.maximum(own, change / total[tenant][:, None]))
        alone = 1.0 / time - 1.0
    # A job may no longer be able to run where it is.
    gain[here == 0.0] = np.inf
    if not seen.all():
        taken = np.zeros(len(known.speed) * n_accelerators, dtype=bool)
        taken[present] = True
        tries = ~taken.reshape(-1, n_accelerators)[profile]
        gain = np.where(seen, gain, np.where(tries, alone[:, None], 0.0))
    gain[~can] = 0.0
    return gain


def _prospects(
    homes: JobHomes, tenants: list[int], gangs: list[int]
) -> tuple[FloatArray, FloatArray]:
    """Return groups × accelerators → time of one more job, and what the tenant could be due."""
    pairs = list(zip(tenants, gangs, strict=True))
    place = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
    of_group = [place[pair] for pair in pairs]
    time, entitled = np.zeros((2, len(place), len(homes.pools)))
    devices = homes.snap.capacity.tolist()
    for (tenant, gang), i in place.items():
        for k, pool in enumerate(homes.pools):
            if devices[k] >= gang:  # tenants have no tickets for accelerators without devices
                time[i, k] = pool.time(tenant, gang)
                entitled[i, k] = pool.entitlement_if_all_usable(tenant)
    return time[of_group], entitled[of_group]


def _totals(homes: JobHomes, known: SpeedKnowledge) -> FloatArray:
    """Return tenants → devices it is due, each counted by its jobs' speed over their best."""
    rows = (homes.accelerator >= 0).nonzero()[0]
    tenant, accelerator, profile = homes.tenant[rows], homes.accelerator[rows], homes.profile[rows]
    time = np.column_stack([pool.due / np.maximum(pool.demand, 1e-300) for pool in homes.pools])
    speed = known.speed[profile, accelerator] / known.speed[profile].max(axis=1)
    worth = homes.gang[rows] * time[tenant, accelerator] * speed
    return np.bincount(tenant, worth, len(homes.tickets)).astype(np.float64)


def _from_fullest(homes: JobHomes, rows: IntArray) -> int:
    """Return which of these jobs moves: one from the most loaded site, waiting if possible."""
    accelerator = int(homes.accelerator[rows[0]])
    load = np.zeros(len(homes.sites))
    load[homes.up[accelerator]] = homes.load(accelerator)
    here = np.where(homes.home[rows] >= 0, load[homes.home[rows]], 0.0)
    return int(rows[_argmax_with_ties(here, homes.snap.lease[rows] >= 0, -rows)])


def _argmax_with_ties(value: FloatArray, *then: IntArray | BoolArray) -> int:
    """Return where the value is greatest; of equals the least by the further columns."""
    return int(np.lexsort((*then[::-1], -value.round(9)))[0])
