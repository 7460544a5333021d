"""Contract of a strategy: learning curves in, trials to stop and weights out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """The reports of one unfinished or ended trial so far."""

    trial: int
    progress: Sequence[float]
    """parts of the full training, ascending, above 0 and at most 1, one per report"""
    value: Sequence[float]
    """reported values; the greater, the better"""
    has_ended: bool = False
    judged: int = 0
    """intervals after which it was compared with others (population-based training)"""
    replaces: int | None = None
    """trial that was stopped in its favour"""

    @property
    def best(self) -> float:
        """Greatest value, minus infinity before the first report."""
        return max(self.value, default=-float("inf"))

    def value_at(self, progress: float) -> float | None:
        """Return the greatest value up to the first report at or after a progress, or None."""
        best = -float("inf")
        for at, value in zip(self.progress, self.value, strict=True):
            best = max(best, value)
            if at >= progress - 1e-12:
                return best
        return None


@dataclass(frozen=True, slots=True)
class Decision:
    """Trials to stop, and the weights of the others."""

    stopped: frozenset[int] = frozenset()
    weight: Mapping[int, float] = field(default_factory=dict)
    """trial → weight, from above 0 to 1; 1 where it is not listed"""
    judged: Mapping[int, int] = field(default_factory=dict)
    """trial → intervals after which it has now been compared with others"""
    replaced: Mapping[int, int] = field(default_factory=dict)
    """trial to stop → trial whose checkpoint a new one continues in its place"""


class Strategy(Protocol):
    """Decides which trials of a search continue, and with which weight."""

    def decide(self, curves: Sequence[LearningCurve]) -> Decision:
        """Return a decision on the unfinished trials; called after every change of a curve."""
        ...
