"""Between whom fairness is measured, and what a bundle of devices is worth to each of them.

Whatever a policy's rows are, an audit asks the same question of every participant: how fast
could you go with these devices? The answer is in normalised speed, so that participants can be
compared: a device counts as so many devices of average speed (jobs) or of the slowest
accelerator (tenants).
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import SolveError
from fairlead.solve.linear import INFINITY, Columns, LinearProgram, solve_lp

By = Literal["jobs", "tenants"]


@dataclass(frozen=True, slots=True, eq=False)
class Participants:
    """The participants of an audit and how they use devices.

    A participant has parts (its jobs, or its workloads) that use devices. With ``timed`` parts a
    unit of use is all of a part's time, of which it has 1 at most; otherwise it is one device.
    A participant's value is the sum over its parts. Where the parts have a ``portion``, each
    makes this part of the sum, as OEF divides a tenant's weight over its workloads (§4.2.4).
    """

    by: By
    names: tuple[str, ...]
    weight: FloatArray
    """participants → entitlement"""
    owner: IntArray
    """parts → participant, ascending; every participant has one"""
    gain: FloatArray
    """parts × accelerators → normalised speed per unit of use; 0 where it does not run"""
    size: FloatArray
    """parts × accelerators, or × 1 where all are alike → devices that a unit of use holds"""
    portion: FloatArray | None
    """parts → part of the participant's value that it makes; None: as it comes"""
    capacity: FloatArray
    """accelerators → devices"""
    timed: bool
    feasible_set: str
    """the allocations that are compared, in words"""

    def __len__(self) -> int:
        return len(self.names)

    def parts(self, participant: int) -> slice:
        """Return the parts of a participant."""
        first, last = np.searchsorted(self.owner, [participant, participant + 1])
        return slice(int(first), int(last))

    @property
    def equal_split(self) -> FloatArray:
        """participants × accelerators → devices of each in proportion to the weights."""
        split: FloatArray = (self.weight / self.weight.sum())[:, None] * self.capacity
        return split

    def value(self, participant: int, bundles: FloatArray) -> FloatArray:
        """Return bundles → the greatest normalised speed the participant can make of each.

        ``bundles`` is bundles × accelerators, in devices.
        """
        mine = self.parts(participant)
        gain, size = self.gain[mine], self.size[mine]
        if len(size) > 1:
            return np.array([self._divided(mine, bundle) for bundle in bundles])
        use = bundles / size[0]
        if self.timed:
            # One job with one unit of time: the fastest devices first, until the time is up.
            order = np.argsort(-gain[0], kind="stable")
            use = np.where(gain[0] > 0, use, 0.0)[:, order]
            before = np.cumsum(use, axis=1) - use
            use, gain = np.clip(1.0 - before, 0.0, use), gain[:, order]
        value: FloatArray = (use * gain[0]).sum(axis=1)
        return value

    def _divided(self, mine: slice, bundle: FloatArray) -> float:
        """Return what the parts of one participant make of a bundle that they divide best."""
        alone = replace(
            self,
            names=("",),
            weight=np.ones(1),
            owner=np.zeros(mine.stop - mine.start, np.int64),
            gain=self.gain[mine],
            size=self.size[mine],
            portion=None if self.portion is None else self.portion[mine],
            capacity=np.maximum(bundle, 0.0),
        )
        return float(most(alone, np.zeros(1)).value[0])


@dataclass(frozen=True, slots=True, eq=False)
class Most:
    """The use of all devices with the greatest total value."""

    value: FloatArray
    """participants → normalised speed"""
    use: FloatArray
    """parts × accelerators → use"""


def most(parties: Participants, floor: FloatArray) -> Most:
    """Return the use with the greatest total value in which nobody falls below ``floor``.

    SolveError when the floors cannot be reached together.
    """
    n_parts, kinds = parties.gain.shape
    n, uses = len(parties), n_parts * kinds
    part, kind = np.divmod(np.arange(uses), kinds)
    # Rows: devices of each accelerator, time of each part, and V <= what the parts reach: one
    # row a participant over all its parts, or V <= speed / portion for each of its parts.
    first = kinds + n_parts
    if parties.portion is None:
        value_of, tells, worth = np.arange(n), parties.owner[part], -parties.gain.ravel()
    else:
        value_of, tells = parties.owner, part
        worth = -(parties.gain / parties.portion[:, None]).ravel()
    row = np.concatenate([kind, kinds + part, first + tells, first + np.arange(len(value_of))])
    column = np.concatenate([*(np.arange(uses),) * 3, uses + value_of])
    size = np.broadcast_to(parties.size, parties.gain.shape).ravel()
    value = np.concatenate([size, np.ones(uses), worth, np.ones(len(value_of))])
    n_rows = first + len(value_of)
    upper = np.zeros(n_rows)
    upper[:kinds] = parties.capacity
    upper[kinds:first] = 1.0 if parties.timed else INFINITY
    can = np.where(parties.gain.ravel() > 0, INFINITY, 0.0)
    found = solve_lp(
        LinearProgram(
            cost=np.concatenate([np.zeros(uses), -np.ones(n)]),
            matrix=_by_columns(row, column, value, uses + n),
            row_lower=np.full(n_rows, -INFINITY),
            row_upper=upper,
            lower=np.concatenate([np.zeros(uses), floor]),
            upper=np.concatenate([can, np.full(n, INFINITY)]),
        )
    )
    return Most(found.value[uses:], found.value[:uses].reshape(n_parts, kinds))


def max_total_value_above(parties: Participants, own: FloatArray) -> Most | None:
    """Return the greatest total value that leaves everyone at least ``own``.

    None when ``own`` is out of the feasible set's reach, as packed jobs' speeds can be.
    """
    try:
        # A billionth below: the allocation itself may break a limit in its last digits.
        return most(parties, own * (1 - 1e-9))
    except SolveError:
        return None


def _by_columns(row: IntArray, column: IntArray, value: FloatArray, width: int) -> Columns:
    kept = value != 0
    row, column, value = row[kept], column[kept], value[kept]
    order = np.lexsort((row, column))
    start = np.searchsorted(column[order], np.arange(width + 1))
    return Columns(start, row[order], value[order])
