"""Asynchronous successive halving (Li et al., MLSys 2020) and Hyperband (Li et al., JMLR 2018).

The variant that stops trials, as in Ray Tune and Optuna: a trial that reaches a rung continues if
it is among the best 1/η of the trials that have reached this rung so far.
"""

import math
from collections.abc import Sequence

from fairlead.tuning.strategies.base import Decision, LearningCurve


class Asha:
    """Asynchronous successive halving."""

    def __init__(self, min_progress: float, reduction: int = 3) -> None:
        self._reduction = reduction
        self.rungs: list[float] = []
        """progress of every rung, ascending"""
        rung = min_progress
        while rung < 1.0 - 1e-12:
            self.rungs.append(rung)
            rung *= reduction
        self._judged: set[tuple[int, int]] = set()
        """trial and rung"""

    def decide(self, curves: Sequence[LearningCurve]) -> Decision:
        """Judge each trial once at every rung that it has reached."""
        stopped = set()
        for curve in curves:
            if curve.has_ended or not curve.progress:
                continue
            for rung, progress in enumerate(self.rungs):
                if curve.progress[-1] < progress - 1e-12:
                    break
                if (curve.trial, rung) not in self._judged:
                    self._judged.add((curve.trial, rung))
                    if not self._is_among_best(curve, progress, curves):
                        stopped.add(curve.trial)
        return Decision(frozenset(stopped))

    def _is_among_best(
        self, curve: LearningCurve, progress: float, curves: Sequence[LearningCurve]
    ) -> bool:
        reached = [v for c in curves if (v := c.value_at(progress)) is not None]
        own = curve.value_at(progress)
        kept = max(len(reached) // self._reduction, 1)
        return own is not None and own >= sorted(reached, reverse=True)[kept - 1]


class Hyperband:
    """Several brackets of successive halving, from many short trials to few long ones.

    Trials go to the brackets in turn, in proportion to the trials that each bracket begins with.
    """

    def __init__(self, min_progress: float, reduction: int = 3) -> None:
        first = Asha(min_progress, reduction)
        self.brackets = [Asha(rung, reduction) for rung in first.rungs] or [first]
        count = len(self.brackets)
        sizes = [
            math.ceil(count * reduction ** (count - 1 - i) / (count - i)) for i in range(count)
        ]
        self._turns = [i for i, size in enumerate(sizes) for _ in range(size)]

    def bracket_of(self, trial: int) -> int:
        """Return the bracket of a trial."""
        return self._turns[trial % len(self._turns)]

    def decide(self, curves: Sequence[LearningCurve]) -> Decision:
        """Judge the trials of every bracket by themselves."""
        stopped: set[int] = set()
        for i, bracket in enumerate(self.brackets):
            own = [curve for curve in curves if self.bracket_of(curve.trial) == i]
            stopped |= bracket.decide(own).stopped
        return Decision(frozenset(stopped))


class RunToEnd:
    """Stops no trial."""

    def decide(self, curves: Sequence[LearningCurve]) -> Decision:
        """Return the decision that all trials continue."""
        del curves
        return Decision()
