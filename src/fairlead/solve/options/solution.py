"""Solution of a water-filling over options, with its proof."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Certificate
from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.solve.certificate import certify
from fairlead.solve.options.basis import Basics
from fairlead.solve.options.problem import OptionProblem
from fairlead.solve.options.vertex import OptionVertex


@dataclass(frozen=True, slots=True, eq=False)
class OptionStage:
    """The end of one stage, the prices that prove it, and the classes it stopped."""

    theta: float
    vertex: OptionVertex
    stopped: BoolArray
    level: FloatArray
    """classes → level at its end"""
    rate: FloatArray
    """classes → how the levels asked for grew at its end"""


@dataclass(frozen=True, slots=True, eq=False)
class OptionSolution:
    """The lexicographically greatest levels along a path, and the times that reach them."""

    problem: OptionProblem
    time: FloatArray
    """options → total time over the members"""
    level: FloatArray
    """classes → level of each member"""
    stages: tuple[OptionStage, ...]
    tied: FloatArray | None = None
    """options → what its use costs more by the tie rule, if that was solved by prices"""
    basis: Basics | None = None
    """the basic columns and rows at the end of the first stage, if a start was given"""

    def certify_least(self) -> Certificate:
        """Proof that the least level of a flat path cannot be raised: by a cap or by prices."""
        vertex = self.stages[0].vertex if self.stages else None
        return certify_least(self.problem, self.problem.level(self.time), vertex)

    def certify_theta(self) -> Certificate:
        """Proof, by prices, that no allocation reaches the path's levels beyond the first stage.

        The path's levels there are taken to keep rising at their last rates, or faster.
        """
        return certify_theta(self.problem, self.stages)


def certify_theta(problem: OptionProblem, stages: Sequence[OptionStage]) -> Certificate:
    """Proof that no allocation over a problem's options exceeds the levels of the first stage."""
    none = np.zeros(len(problem.capacity))
    if not stages:
        return Certificate(none, 0.0, 0.0)
    stage, count = stages[0], problem.count
    weight = count * np.maximum(stage.vertex.level_price, 0.0)
    rise = float((weight * stage.rate).sum())
    if rise <= 0.0:  # no class rises: the path's top
        return certify(none, stage.theta, stage.theta)
    spare = weighted_levels(problem, stage.vertex) - float((weight * stage.level).sum())
    prices = np.maximum(stage.vertex.prices, 0.0) / rise
    return certify(prices, stage.theta + max(spare, 0.0) / rise, stage.theta)


def certify_least(
    problem: OptionProblem, level: FloatArray, vertex: OptionVertex | None
) -> Certificate:
    """Proof that the least level cannot be raised: by a cap or by the prices of a vertex."""
    live = (problem.count > 0) & (problem.cap > 0)
    least_cap = float(problem.cap[live].min(initial=np.inf))
    none = np.zeros(len(problem.capacity))
    if not live.any():
        return Certificate(none, 0.0, 0.0)
    reached = float(level[live].min())
    if vertex is None or reached >= least_cap * (1 - 1e-9):
        return certify(none, least_cap, reached)
    total = float((problem.count * np.maximum(vertex.level_price, 0.0)).sum())
    bound = min(least_cap, weighted_levels(problem, vertex) / max(total, 1e-300))
    return certify(np.maximum(vertex.prices, 0.0) / vertex.scale, bound, reached)


def weighted_levels(problem: OptionProblem, vertex: OptionVertex) -> float:
    """Return what Σ n w · level does not exceed, w being the vertex's prices of the levels.

    Weights w_k >= 0 of the levels, prices p of the devices and wages q of the members' time
    with w_a gain_a + w_b gain_b <= size p_j + q_a + q_b for every option show that the weighted
    levels sum to at most Σ capacity p + Σ n q. Rounding is repaired by raising the wages. Extra
    rows add their price times their bound.
    """
    weight, price = np.maximum(vertex.level_price, 0.0), np.maximum(vertex.prices, 0.0)
    rows = np.concatenate([price, -weight, np.maximum(vertex.time_price, 0.0), vertex.extra])
    return problem.worth(rows, np.maximum(-problem.priced(rows), 0.0))
