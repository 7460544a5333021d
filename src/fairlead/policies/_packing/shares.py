"""Shares of units from the total times of options.

Every member of a class gets the same part of each of its options, so all have the same speed.
Not every job of one class is paired with every job of the other: partners are assigned in order,
so that there are hardly more units than jobs.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from fairlead.model.allocation import Allocation, Certificate
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.snapshot import Snapshot
from fairlead.policies._packing.table import UnitRules, UnitTable
from fairlead.policies.base import job_allocation
from fairlead.solve.options.problem import NO_PARTNER

# Times of a class below this are rounding.
_NOTHING = 1e-11


def unit_allocation(
    snap: Snapshot,
    table: UnitTable,
    time: FloatArray,
    *,
    worth: Callable[[], float] | None = None,
    prove: Callable[[], Certificate] | None = None,
) -> Allocation:
    """Return the allocation that gives the options these total times.

    The rows are the jobs that sometimes run alone or are never packed, in the snapshot's order;
    then the packed pairs.
    """
    classes = table.classes
    used = time > _NOTHING
    alone = used & (table.second == NO_PARTNER)
    by_class = np.zeros((len(classes.count), len(table.columns)))
    share = time / classes.count[table.first]
    np.add.at(by_class, (table.first[alone], table.column[alone]), share[alone])
    packed = (used & ~alone).nonzero()[0]
    solo = by_class[classes.index_of_member]
    if len(packed):
        members, shares = _pairs(table, packed, time)
        never_packed = np.ones(len(solo), bool)
        never_packed[members.ravel()] = False
        kept = (never_packed | solo.any(axis=1)).nonzero()[0]
        single = np.column_stack([snap.job[kept], np.full(len(kept), -1)])
        rows, share = np.vstack([single, snap.job[members]]), np.vstack([solo[kept], shares])
    else:
        rows, share = snap.job.reshape(-1, 1), solo
    return Allocation(
        members=rows,
        share=share,
        columns=table.columns,
        speed=class_speed(table, time)[classes.index_of_member],
        worth=worth,
        prove=prove,
    )


def as_job_shares(snap: Snapshot, units: Allocation, rules: UnitRules) -> Allocation:
    """Return the shares as those of jobs if the rules allow neither pairs nor placements."""
    if rules.packed or rules.placement:
        return units
    return job_allocation(snap, units.share, worth=units.worth, prove=units.prove)


def class_speed(table: UnitTable, time: FloatArray) -> FloatArray:
    """Return classes → steps per second of each member."""
    total = np.bincount(table.first, table.speed_first * time, len(table.classes.count))
    two = table.second != NO_PARTNER
    total += np.bincount(table.second[two], (table.speed_second * time)[two], len(total))
    speed: FloatArray = total / table.classes.count
    return speed


def _pairs(table: UnitTable, packed: IntArray, time: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return units × 2 → rows of the packed jobs, and units × columns → shares."""
    classes = table.classes
    order = np.argsort(classes.index_of_member, kind="stable")
    start = np.append(0, np.cumsum(classes.count))
    n_classes = len(classes.count)
    code, place = np.unique(
        table.first[packed] * n_classes + table.second[packed], return_inverse=True
    )
    totals = np.zeros((len(code), len(table.columns)))
    np.add.at(totals, (place, table.column[packed]), time[packed])
    first, second = np.divmod(code, n_classes)
    if (classes.count[first] == 1).all() and (classes.count[second] == 1).all():
        return np.column_stack([order[start[first]], order[start[second]]]), totals
    members, shares = [], []
    for a, b, total in zip(first.tolist(), second.tolist(), totals, strict=True):
        n_a, n_b = int(classes.count[a]), int(classes.count[b])
        i, j, part = pair_within_class(n_a) if a == b else pair_two_classes(n_a, n_b)
        members.append(np.column_stack([order[start[a] + i], order[start[b] + j]]))
        shares.append(part[:, None] * total)
    return np.concatenate(members), np.concatenate(shares)


@lru_cache(maxsize=4096)
def pair_two_classes(n_a: int, n_b: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Return pairs of members of two classes and their parts, which sum to 1/n_a and 1/n_b each.

    The north-west corner rule: both classes are laid out along one line in order, and members
    that overlap are partners; n_a + n_b - gcd(n_a, n_b) pairs.
    """
    whole = n_a * n_b
    ends = np.union1d(np.arange(0, whole + 1, n_b), np.arange(0, whole + 1, n_a))
    return ends[:-1] // n_b, ends[:-1] // n_a, np.diff(ends) / whole


@lru_cache(maxsize=1024)
def pair_within_class(n: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Return pairs of each member with the next one, all with equal parts; n = 2 is one pair."""
    if n == 2:
        return np.array([0]), np.array([1]), np.ones(1)
    i = np.arange(n)
    return i, (i + 1) % n, np.full(n, 1.0 / n)
