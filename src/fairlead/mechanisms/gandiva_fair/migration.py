"""Which jobs migrate: to even out load, and to where their tenant gains most (§3.5, Migration)."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from fairlead.mechanisms.gandiva_fair.allocation import SpeedKnowledge, choose_sites
from fairlead.mechanisms.gandiva_fair.gang_contention import Part, SiteLoad, site_loads
from fairlead.mechanisms.gandiva_fair.memory import NOWHERE
from fairlead.mechanisms.gandiva_fair.node_assignment import Homes
from fairlead.model.arrays import BoolArray, FloatArray, IntArray

_EQUAL = 1e-9
_SWAP = 1.5
"""jobs change places when one tenant's tickets are raised by so much more than the other's"""


class Move(NamedTuple):
    """A job that would better be at home elsewhere: on the accelerator ``kind``."""

    gain: float
    """by what part it, or the worse served of two nodes, would get more"""
    row: int
    kind: int
    site: int = NOWHERE
    """NOWHERE: where Algorithm 2 puts it"""
    back: int = -1
    """a row that moves the other way; -1: none"""


def migrate(homes: Homes, known: SpeedKnowledge, threshold: float, most: int) -> None:
    """Move up to so many jobs, the best gain first, each gain above the threshold."""
    moved = np.zeros(len(homes.home), dtype=bool)
    for _ in range(most):
        found = [*between_nodes(homes), *between_accelerators(homes, known, ~moved)]
        if not _perform_best(homes, found, threshold, moved):
            return


def migrate_traded(
    homes: Homes, known: SpeedKnowledge, threshold: float, tenant: int, most: int
) -> None:
    """Move up to so many jobs of a party of a trade to what it now has more of."""
    moved = np.zeros(len(homes.home), dtype=bool)
    for _ in range(most):
        found = between_accelerators(homes, known, ~moved & (homes.tenant == tenant))
        if not _perform_best(homes, list(found), threshold, moved):
            return


def _perform_best(
    homes: Homes, found: Collection[Move], threshold: float, moved: BoolArray
) -> bool:
    # A job that has just moved would only move back: what it gains was known before.
    found = [move for move in found if move.gain > threshold and not moved[move.row]]
    if not found:
        return False
    best = max(found, key=lambda move: (round(move.gain, 9), -move.row))
    row, gang, left = best.row, int(homes.gang[best.row]), int(homes.home[best.row])
    homes.clear_home(row)
    here = best.site == NOWHERE
    homes.set_home(row, choose_sites(homes, row, best.kind) if here else {best.site: gang})
    moved[row] = True
    if best.back >= 0:
        homes.clear_home(best.back)
        homes.set_home(best.back, {left: gang})
        moved[best.back] = True
    return True


def between_nodes(homes: Homes) -> Iterator[Move]:
    """Give, for each accelerator, the best moves between two of its sites.

    One goes from the most to the least loaded site; the gain is by how much the worse served of
    the two improves, where a load up to 1 serves all. Another fills devices that a large gang
    leaves idle when it does not run (§3.3), from a site that can spare a job; the gain is the
    part of the site's devices that this puts to use. The third lets a job of a tenant that has
    missed much change places with an equal one of a tenant that had too much.
    """
    tickets = homes.job_tickets()
    for kind, up in enumerate(homes.up):
        if len(up) > 1:
            crowds = site_loads(homes, kind, tickets)
            yield from _load_levelling_moves(homes, kind, crowds, tickets)
            yield from _gap_filling_moves(homes, kind, crowds, tickets)
            yield from _swap_moves(homes, kind, crowds)


def _load_levelling_moves(
    homes: Homes, kind: int, crowds: Mapping[int, SiteLoad], tickets: FloatArray
) -> Iterator[Move]:
    load = {site: round(crowd.load, 9) for site, crowd in crowds.items()}
    hot = max(load, key=lambda site: (load[site], -site))
    cool = min(load, key=lambda site: (load[site], site))
    rows = ((homes.home == hot) & (homes.gang <= crowds[cool].size)).nonzero()[0]
    if load[hot] <= 1.0 or not len(rows):
        return
    parts = [Part(int(homes.gang[row]), float(tickets[row])) for row in rows.tolist()]
    by_part = {}
    for one in dict.fromkeys(parts):
        worst = max(crowds[hot].without(one).load, crowds[cool].joined(one).load, 1.0)
        by_part[one] = load[hot] / worst - 1.0
    gain = np.array([by_part[one] for one in parts])
    best = int(rows[_argmax_with_ties(gain, homes.snap.lease[rows] >= 0, -rows)])
    yield Move(float(gain.max()), best, kind, cool)


def _gap_filling_moves(
    homes: Homes, kind: int, crowds: Mapping[int, SiteLoad], tickets: FloatArray
) -> Iterator[Move]:
    gap = {site: crowd.gap for site, crowd in crowds.items() if crowd.gap > 0}
    if not gap:
        return
    site = max(gap, key=lambda site: (gap[site] * crowds[site].idle, -site))
    able = (homes.kind == kind) & (homes.home >= 0) & (homes.home != site)
    rows = (able & (homes.gang <= gap[site])).nonzero()[0]
    for row in rows[np.lexsort((rows, homes.snap.lease[rows] >= 0, -homes.gang[rows]))].tolist():
        there = int(homes.home[row])
        one = Part(int(homes.gang[row]), float(tickets[row]))
        left, full = crowds[there].without(one), crowds[site].joined(one)
        spares = left.gangs >= left.size and left.gap <= crowds[there].gap
        if spares and full.load <= max(crowds[site].load, crowds[there].load) + _EQUAL:
            yield Move(one.gang * crowds[site].idle / full.size, row, kind, site)
            return


def _swap_moves(homes: Homes, kind: int, crowds: Mapping[int, SiteLoad]) -> Iterator[Move]:
    owing = homes.owing[:, kind]
    if owing.max() <= owing.min() * _SWAP:
        return
    load = np.full(len(homes.sites), np.nan)
    load[list(crowds)] = [crowd.load for crowd in crowds.values()]
    rows = ((homes.kind == kind) & (homes.home >= 0)).nonzero()[0]
    mine, here = owing[homes.tenant[rows]], load[homes.home[rows]]
    for gang in np.unique(homes.gang[rows]).tolist():
        same = homes.gang[rows] == gang
        worst = rows[same][
            _argmax_with_ties(np.where(here[same] > 1.0, mine[same], 0.0), rows[same])
        ]
        better = same & (here < load[homes.home[worst]] * (1 - _EQUAL))
        if not better.any():
            continue
        lucky = rows[better][_argmax_with_ties(-mine[better], rows[better])]
        gain = owing[homes.tenant[worst]] / owing[homes.tenant[lucky]]
        if gain > _SWAP:
            yield Move(float(gain) - 1.0, int(worst), kind, int(homes.home[lucky]), int(lucky))


def between_accelerators(homes: Homes, known: SpeedKnowledge, may: BoolArray) -> Iterator[Move]:
    """Give the best move of a job to another accelerator, of those that may move.

    The job must not get slower; the gain is the greater of its own and its tenant's. A profile
    whose jobs share devices also tries an accelerator on which it has never run.
    """
    kinds = len(homes.pools)
    at_home = ((homes.kind >= 0) & may).nonzero()[0]
    total = _totals(homes, known)
    best = (0.0, -1, -1)
    groups = np.unique(homes.profile[at_home] * kinds + homes.kind[at_home]).tolist()
    present = set(groups)
    for group in groups:
        profile, source = divmod(group, kinds)
        if not known.seen[profile, source]:
            continue
        for kind in range(kinds):
            if kind != source and known.speed[profile, kind] > 0:
                tries = profile * kinds + kind not in present
                gain = _gain(homes, known, profile, source, kind, tries, total)
                if gain > best[0] + _EQUAL:
                    best = gain, group, kind
    gain, group, kind = best
    if group >= 0:
        same = homes.profile[at_home] * kinds + homes.kind[at_home] == group
        yield Move(gain, _from_fullest(homes, at_home[same]), kind)


def _gain(
    homes: Homes,
    known: SpeedKnowledge,
    profile: int,
    source: int,
    kind: int,
    tries: bool,
    total: FloatArray,
) -> float:
    """Return what a job of the profile, or its tenant, would gain by moving; 0 for nothing."""
    profiles = homes.snap.profiles
    tenant, gang = int(profiles.tenant[profile]), int(profiles.gang[profile])
    if homes.snap.capacity[kind] < gang:
        return 0.0
    here, there = homes.pools[source], homes.pools[kind]
    time = float(here.due[tenant] / here.demand[tenant])
    if not known.seen[profile, kind]:
        return 1.0 / time - 1.0 if tries else 0.0
    speed = known.speed[profile]
    own = float(speed[kind] * there.time(tenant, gang) / (speed[source] * time)) - 1.0
    if own < -_EQUAL:
        return 0.0
    lost = here.due[tenant] - min(
        here.entitlement_if_all_usable(tenant), here.demand[tenant] - gang
    )
    won = (
        min(there.entitlement_if_all_usable(tenant), there.demand[tenant] + gang)
        - there.due[tenant]
    )
    change = (won * speed[kind] - lost * speed[source]) / speed.max()
    return max(own, float(change / total[tenant]))


def _totals(homes: Homes, known: SpeedKnowledge) -> FloatArray:
    """Return tenants → devices it is due, each counted by its jobs' speed over their best."""
    rows = (homes.kind >= 0).nonzero()[0]
    tenant, kind, profile = homes.tenant[rows], homes.kind[rows], homes.profile[rows]
    time = np.column_stack([pool.due / np.maximum(pool.demand, 1e-300) for pool in homes.pools])
    speed = known.speed[profile, kind] / known.speed[profile].max(axis=1)
    worth = homes.gang[rows] * time[tenant, kind] * speed
    return np.bincount(tenant, worth, len(homes.tickets)).astype(np.float64)


def _from_fullest(homes: Homes, rows: IntArray) -> int:
    """Return which of these jobs moves: one from the most loaded site, waiting if possible."""
    kind = int(homes.kind[rows[0]])
    load = np.zeros(len(homes.sites))
    load[homes.up[kind]] = homes.load(kind)
    here = np.where(homes.home[rows] >= 0, load[homes.home[rows]], 0.0)
    return int(rows[_argmax_with_ties(here, homes.snap.lease[rows] >= 0, -rows)])


def _argmax_with_ties(value: FloatArray, *then: IntArray | BoolArray) -> int:
    """Return where the value is greatest; of equals the least by the further columns."""
    return int(np.lexsort((*then[::-1], -value.round(9)))[0])
