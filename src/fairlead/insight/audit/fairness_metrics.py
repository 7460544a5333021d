"""Figures of an audit with truthful reports: Pareto slack, envy, sharing incentive, efficiency.

Figures relative to a participant's value use at least a millionth of its value under an equal
split as the base, so that participants that receive nothing have a finite, large figure.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.insight.bundles import ReceivedShares
from fairlead.insight.participants import Participants, max_total_value, max_total_value_above
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.solve.classes import merge

_NEGLIGIBLE = 1e-6
_ROUNDING = 1e-8
"""slack below this is a rounding error of the allocation"""


@dataclass(frozen=True, slots=True, eq=False)
class ParetoSlack:
    """Possible gain without harm to any participant, and one allocation that realises it."""

    slack: float
    """highest relative gain in total normalised speed without loss for any participant"""
    gain: FloatArray
    """participants → gain in normalised speed"""
    use: FloatArray | None
    """parts × accelerators → use of the witness; None if only packing reaches the speeds"""


@dataclass(frozen=True, slots=True, eq=False)
class Envy:
    """Gains of participants from each other's devices; indices are -1 if there is only one."""

    table: FloatArray
    """participants × participants → relative gain of the first with the second's devices, scaled
    to its weight; 0 on the diagonal"""
    worst: float
    participant: int
    other: int


@dataclass(frozen=True, slots=True, eq=False)
class SharingIncentive:
    """Values under an equal split, compared with the allocation."""

    equal: FloatArray
    """participants → normalised speed with an equal split by weight"""
    gap: FloatArray
    """participants → relative gain under the equal split"""
    participant: int

    @property
    def worst(self) -> float:
        """The largest gap; at most 0 if every participant benefits from sharing."""
        return float(self.gap[self.participant])


def gain_scale(participants: Participants, received: ReceivedShares) -> FloatArray:
    """Return participants → base of relative gains: their value, never 0."""
    equal = equal_values(participants)
    scale: FloatArray = np.maximum(received.value, _NEGLIGIBLE * np.where(equal > 0, equal, 1.0))
    return scale


def equal_values(participants: Participants) -> FloatArray:
    """Return participants → normalised speed with an equal split by weight."""
    split = participants.equal_split
    return np.array(
        [float(participants.value(i, split[i : i + 1])[0]) for i in range(len(participants))]
    )


def pareto(participants: Participants, received: ReceivedShares) -> ParetoSlack:
    """Return the highest total gain without loss for any participant, by a linear program."""
    total = float(received.value.sum())
    best = max_total_value_above(participants, received.value)
    if best is None:
        return ParetoSlack(0.0, np.zeros(len(participants)), None)
    gain = np.maximum(best.value - received.value, 0.0)
    slack = float(best.value.sum()) - total
    slack = slack / total if total > 0 else slack
    return ParetoSlack(slack if slack > _ROUNDING else 0.0, gain, best.use)


def efficiency(participants: Participants, received: ReceivedShares) -> float:
    """Return the total normalised speed relative to the highest feasible total."""
    highest = float(max_total_value(participants, np.zeros(len(participants))).value.sum())
    return float(received.value.sum()) / highest if highest > 0 else 1.0


def envy(participants: Participants, received: ReceivedShares) -> Envy:
    """Return the gain of each participant from the others' devices, scaled to its weight."""
    n = len(participants)
    table = np.zeros((n, n))
    scale = gain_scale(participants, received)
    first_equal = _equal_participants(participants)
    for first in np.unique(first_equal).tolist():
        # Bundles per unit of weight: twice the weight justifies twice the devices.
        worth = participants.value(
            first, received.devices * (participants.weight[first] / participants.weight)[:, None]
        )
        for i in np.flatnonzero(first_equal == first).tolist():
            table[i] = (worth - received.value[i]) / scale[i]
    np.fill_diagonal(table, 0.0)
    if n < 2:
        return Envy(table, 0.0, -1, -1)
    others = table + np.where(np.eye(n) > 0, -np.inf, 0.0)
    participant, other = divmod(int(others.argmax()), n)
    return Envy(table, float(table[participant, other]), participant, other)


def sharing_incentive(participants: Participants, received: ReceivedShares) -> SharingIncentive:
    """Return the relative gain of each participant under an equal split."""
    equal = equal_values(participants)
    gap = (equal - received.value) / gain_scale(participants, received)
    return SharingIncentive(equal, gap, int(gap.argmax()))


def _equal_participants(participants: Participants) -> IntArray:
    """Return participants → the first participant with the same valuation."""
    n = len(participants)
    if len(participants.owner) > n:
        return np.arange(n)
    classes = merge(participants.gain, participants.size, participants.weight)
    return classes.representative[classes.index_of_member]
