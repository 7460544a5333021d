"""Participants of an audit, and the value of device bundles to each of them.

The value of a bundle is the highest normalised speed that a participant reaches with it.
Normalised speeds are comparable between participants: they count devices of average speed
(jobs) or of the slowest accelerator (tenants).
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import SolveError
from fairlead.solve.linear import INFINITY, Columns, LinearProgram, solve_lp

ParticipantKind = Literal["jobs", "tenants"]


@dataclass(frozen=True, slots=True, eq=False)
class Participants:
    """The participants of an audit and how they use devices.

    A participant has parts (its jobs or its workloads) that use devices. A unit of use is all of
    the part's time if ``timed``, at most 1 per part, and one device otherwise. A participant's
    value is the sum over its parts. With ``portion``, each part makes this fraction of the sum,
    as OEF divides a tenant's weight over its workloads (§4.2.4).
    """

    by: ParticipantKind
    names: tuple[str, ...]
    weight: FloatArray
    """participants → entitlement"""
    owner: IntArray
    """parts → participant, ascending; every participant has at least one part"""
    gain: FloatArray
    """parts × accelerators → normalised speed per unit of use; 0 if it cannot run"""
    size: FloatArray
    """parts × accelerators (or × 1 if all are equal) → devices per unit of use"""
    portion: FloatArray | None
    """parts → required fraction of the participant's value; None: any"""
    capacity: FloatArray
    """accelerators → devices"""
    timed: bool
    feasible_set: str
    """description of the feasible allocations"""

    def __len__(self) -> int:
        return len(self.names)

    def parts(self, participant: int) -> slice:
        """Return the parts of a participant."""
        first, last = np.searchsorted(self.owner, [participant, participant + 1])
        return slice(int(first), int(last))

    @property
    def equal_split(self) -> FloatArray:
        """participants × accelerators → devices in proportion to the weights."""
        split: FloatArray = (self.weight / self.weight.sum())[:, None] * self.capacity
        return split

    def value(self, participant: int, bundles: FloatArray) -> FloatArray:
        """Return bundles → the highest normalised speed of the participant with each.

        ``bundles`` is bundles × accelerators → devices.
        """
        parts = self.parts(participant)
        gain, size = self.gain[parts], self.size[parts]
        if len(size) > 1:
            return np.array([self._divided(parts, bundle) for bundle in bundles])
        use = bundles / size[0]
        if self.timed:
            # One job with one unit of time: fastest devices first until the time is used up.
            order = np.argsort(-gain[0], kind="stable")
            use = np.where(gain[0] > 0, use, 0.0)[:, order]
            before = np.cumsum(use, axis=1) - use
            use, gain = np.clip(1.0 - before, 0.0, use), gain[:, order]
        value: FloatArray = (use * gain[0]).sum(axis=1)
        return value

    def _divided(self, parts: slice, bundle: FloatArray) -> float:
        """Return the value of a bundle that the parts of one participant divide optimally."""
        alone = replace(
            self,
            names=("",),
            weight=np.ones(1),
            owner=np.zeros(parts.stop - parts.start, np.int64),
            gain=self.gain[parts],
            size=self.size[parts],
            portion=None if self.portion is None else self.portion[parts],
            capacity=np.maximum(bundle, 0.0),
        )
        return float(max_total_value(alone, np.zeros(1)).value[0])


@dataclass(frozen=True, slots=True, eq=False)
class MaxValue:
    """A use of the devices with the highest total value."""

    value: FloatArray
    """participants → normalised speed"""
    use: FloatArray
    """parts × accelerators → use"""


def max_total_value(participants: Participants, floor: FloatArray) -> MaxValue:
    """Return the use with the highest total value in which no participant is below ``floor``.

    Raise SolveError if the floors are infeasible together.
    """
    n_parts, n_accelerators = participants.gain.shape
    n, uses = len(participants), n_parts * n_accelerators
    part, accelerator = np.divmod(np.arange(uses), n_accelerators)
    # Rows: devices of each accelerator, time of each part, and value <= total speed: one row per
    # participant over all its parts, or value <= speed / portion for each part.
    first = n_accelerators + n_parts
    if participants.portion is None:
        value_of, bound, worth = np.arange(n), participants.owner[part], -participants.gain.ravel()
    else:
        value_of, bound = participants.owner, part
        worth = -(participants.gain / participants.portion[:, None]).ravel()
    row = np.concatenate(
        [accelerator, n_accelerators + part, first + bound, first + np.arange(len(value_of))]
    )
    column = np.concatenate([*(np.arange(uses),) * 3, uses + value_of])
    size = np.broadcast_to(participants.size, participants.gain.shape).ravel()
    value = np.concatenate([size, np.ones(uses), worth, np.ones(len(value_of))])
    n_rows = first + len(value_of)
    upper = np.zeros(n_rows)
    upper[:n_accelerators] = participants.capacity
    upper[n_accelerators:first] = 1.0 if participants.timed else INFINITY
    can = np.where(participants.gain.ravel() > 0, INFINITY, 0.0)
    solution = solve_lp(
        LinearProgram(
            cost=np.concatenate([np.zeros(uses), -np.ones(n)]),
            matrix=_by_columns(row, column, value, uses + n),
            row_lower=np.full(n_rows, -INFINITY),
            row_upper=upper,
            lower=np.concatenate([np.zeros(uses), floor]),
            upper=np.concatenate([can, np.full(n, INFINITY)]),
        )
    )
    return MaxValue(solution.value[uses:], solution.value[:uses].reshape(n_parts, n_accelerators))


def max_total_value_above(participants: Participants, own: FloatArray) -> MaxValue | None:
    """Return the use with the highest total value that leaves each participant at least ``own``.

    Return None if ``own`` is infeasible, as speeds of packed jobs can be.
    """
    try:
        # A billionth below: the allocation itself may exceed a limit in its last digits.
        return max_total_value(participants, own * (1 - 1e-9))
    except SolveError:
        return None


def _by_columns(row: IntArray, column: IntArray, value: FloatArray, width: int) -> Columns:
    kept = value != 0
    row, column, value = row[kept], column[kept], value[kept]
    order = np.lexsort((row, column))
    start = np.searchsorted(column[order], np.arange(width + 1))
    return Columns(start, row[order], value[order])
