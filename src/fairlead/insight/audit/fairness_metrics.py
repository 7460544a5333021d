"""The figures of an audit that need no lie: Pareto slack, envy, sharing incentive, efficiency.

A figure that is relative to somebody's own value counts this as at least a millionth of the
value of an equal split, so that whoever gets nothing has a figure too, and a large one.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.insight.bundles import Received
from fairlead.insight.participants import Participants, max_total_value_above, most
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.solve import merge

_NEGLIGIBLE = 1e-6
_ROUNDING = 1e-8
"""slack below this is what the last digits of an allocation leave"""


@dataclass(frozen=True, slots=True, eq=False)
class Slack:
    """What could be had without harming anybody, and one allocation that has it."""

    slack: float
    """greatest gain in total normalised speed that hurts nobody, relative to that total"""
    gain: FloatArray
    """participants → normalised speed gained"""
    use: FloatArray | None
    """parts × accelerators → use of the witness; None: what is given cannot be had unpacked"""


@dataclass(frozen=True, slots=True, eq=False)
class Envy:
    """Who would rather have whose devices; ``who`` is -1 where there is nobody to envy."""

    table: FloatArray
    """participants × participants → what the first would gain from the second's devices per
    weight, relative to what it has; 0 on the diagonal"""
    worst: float
    who: int
    whom: int


@dataclass(frozen=True, slots=True, eq=False)
class SharingIncentive:
    """What an equal split would give, against what sharing gives."""

    equal: FloatArray
    """participants → normalised speed with an equal split by weight"""
    gap: FloatArray
    """participants → what the equal split would give more, relative to what it has"""
    who: int

    @property
    def worst(self) -> float:
        """The greatest gap; at most 0 when sharing is worth everybody's while."""
        return float(self.gap[self.who])


def gain_scale(parties: Participants, got: Received) -> FloatArray:
    """Return participants → what their gains are relative to: their own value, never 0."""
    equal = equal_values(parties)
    scale: FloatArray = np.maximum(got.value, _NEGLIGIBLE * np.where(equal > 0, equal, 1.0))
    return scale


def equal_values(parties: Participants) -> FloatArray:
    """Return participants → normalised speed with an equal split by weight."""
    split = parties.equal_split
    return np.array([float(parties.value(i, split[i : i + 1])[0]) for i in range(len(parties))])


def pareto(parties: Participants, got: Received) -> Slack:
    """Return the greatest total gain that hurts nobody, found by a linear program."""
    total = float(got.value.sum())
    best = max_total_value_above(parties, got.value)
    if best is None:
        return Slack(0.0, np.zeros(len(parties)), None)
    gain = np.maximum(best.value - got.value, 0.0)
    slack = float(best.value.sum()) - total
    slack = slack / total if total > 0 else slack
    return Slack(slack if slack > _ROUNDING else 0.0, gain, best.use)


def efficiency(parties: Participants, got: Received) -> float:
    """Return total normalised speed over the greatest there is when nobody need be spared."""
    greatest = float(most(parties, np.zeros(len(parties))).value.sum())
    return float(got.value.sum()) / greatest if greatest > 0 else 1.0


def envy(parties: Participants, got: Received) -> Envy:
    """Return what everyone would gain from everyone else's devices, scaled to its own weight."""
    n = len(parties)
    table = np.zeros((n, n))
    scale = gain_scale(parties, got)
    alike = _alike(parties)
    for first in np.unique(alike).tolist():
        # Bundles per unit of weight: who has twice the weight may have twice the devices.
        worth = parties.value(
            first, got.devices * (parties.weight[first] / parties.weight)[:, None]
        )
        for i in np.flatnonzero(alike == first).tolist():
            table[i] = (worth - got.value[i]) / scale[i]
    np.fill_diagonal(table, 0.0)
    if n < 2:
        return Envy(table, 0.0, -1, -1)
    others = table + np.where(np.eye(n) > 0, -np.inf, 0.0)
    who, whom = divmod(int(others.argmax()), n)
    return Envy(table, float(table[who, whom]), who, whom)


def sharing_incentive(parties: Participants, got: Received) -> SharingIncentive:
    """Return how much better than now everybody would be off with an equal split."""
    equal = equal_values(parties)
    gap = (equal - got.value) / gain_scale(parties, got)
    return SharingIncentive(equal, gap, int(gap.argmax()))


def _alike(parties: Participants) -> IntArray:
    """Return participants → the first one that values devices in the same way."""
    n = len(parties)
    if len(parties.owner) > n:
        return np.arange(n)
    kinds = merge(parties.gain, parties.size, parties.weight)
    return kinds.representative[kinds.index_of_member]
