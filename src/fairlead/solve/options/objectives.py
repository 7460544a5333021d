"""Linear and linear-fractional objectives over options, and levels that may fall short.

All are settled in order: each objective is made as good as it can be, then held while the next
one is, and the last is always the least device time, perturbed by the options' ``tie`` numbers,
so that the answer is unique.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Certificate
from fairlead.model.arrays import FloatArray
from fairlead.solve.certificate import certify
from fairlead.solve.linear import INFINITY, Columns, LinearProgram, LinearSolution, solve_lp
from fairlead.solve.options.bounds import Bounds
from fairlead.solve.options.problem import OptionProblem

_SAME_RATIO = 1e-12
_MAX_RATIO_ITERATIONS = 100


@dataclass(frozen=True, slots=True, eq=False)
class BestTimes:
    """The times that are best, how good they are, and why nothing is better."""

    time: FloatArray
    """options → total time over the members"""
    reached: float
    prove: Callable[[], Certificate] | None = None
    """compute the proof, if there is one"""

    @property
    def proof(self) -> Certificate | None:
        """Proof that nothing is better, if there is one."""
        return None if self.prove is None else self.prove()


def best_sum(problem: OptionProblem, value: FloatArray) -> BestTimes:
    """Return the times with the greatest Σ value · y; of these the tie rule's."""
    if not len(value):
        return BestTimes(value, 0.0)
    program = FaceProgram(problem, np.zeros(problem.classes))
    first = program.maximise(value)
    # Where no other vertex is as good, there is no tie to break.
    unique = program.settle(first)
    time = problem.feasible(program.times(first) if unique else program.least_device_time())
    reached = float((value * time).sum())
    return BestTimes(time, reached, lambda: certificate(problem, value, first.row_dual, reached))


def best_ratio(problem: OptionProblem, value: FloatArray, cost: FloatArray) -> BestTimes:
    """Return the times with the greatest Σ value · y / Σ cost · y; of these the greatest value.

    A ratio of sums is at most the greatest ratio of its parts, so only the options with that
    ratio are used, to the full. Every option has to cost something.
    """
    if not len(value):
        return BestTimes(value, 0.0)
    ratio = value / cost
    best = float(ratio.max())
    only = np.where(ratio >= best * (1 - _SAME_RATIO), value, 0.0)
    time = _alone(problem, only)
    if time is None:
        time = np.where(only > 0, best_sum(problem, only).time, 0.0)
    reached = _ratio(value, cost, time)
    none = np.zeros(len(problem.capacity))
    return BestTimes(time, reached, lambda: certify(none, best, reached))


def _alone(problem: OptionProblem, value: FloatArray) -> FloatArray | None:
    """Return the greatest times if a single option of one member has a value, else None."""
    valued = value.nonzero()[0]
    if len(valued) != 1 or problem.extra is not None or problem.paired[valued[0]]:
        return None
    option = int(valued[0])
    devices = float(problem.capacity[problem.resource[option]])
    time = np.zeros(len(value))
    time[option] = min(
        float(problem.count[problem.first[option]]), devices / float(problem.size[option])
    )
    return problem.feasible(time)


def best_ratio_above(
    problem: OptionProblem, value: FloatArray, cost: FloatArray, level: FloatArray
) -> BestTimes:
    """Return the times with the best ratio among those that miss ``level`` (classes) the least.

    What is missed is Σ_k n_k (level_k - reached_k) / level_k, over the classes that fall short.
    The ratio is vertex by Dinkelbach's method: with r the ratio reached so far, the times that
    maximise Σ (value - r cost) · y have a better one, until that maximum is 0.
    """
    level = np.where(problem.cap > 0, level, 0.0)
    if not (level * problem.count).any():
        return best_ratio(problem, value, cost)
    program = FaceProgram(problem, level)
    program.settle(program.least_shortfall())
    vertex = program.maximise(value)
    ratio = -np.inf
    for _ in range(_MAX_RATIO_ITERATIONS):
        better = _ratio(value, cost, program.times(vertex))
        if better <= ratio + _SAME_RATIO * abs(ratio):
            break
        ratio = better
        vertex = program.maximise(_margin_above(value, ratio * cost))
    program.settle(vertex)
    program.settle(program.maximise(value))
    time = problem.feasible(program.least_device_time())
    return BestTimes(time, _ratio(value, cost, time))


def _margin_above(value: FloatArray, cost: FloatArray) -> FloatArray:
    """Return value - cost, 0 where they differ by rounding only: that is no reason to prefer."""
    gain = value - cost
    return np.where(np.abs(gain) > _SAME_RATIO * np.abs(value), gain, 0.0)


def _ratio(value: FloatArray, cost: FloatArray, time: FloatArray) -> float:
    spent = float((cost * time).sum())
    return float((value * time).sum()) / spent if spent > 0 else 0.0


class FaceProgram:
    """The rows of a problem and floors for levels, narrowed to one optimal face after another."""

    def __init__(self, problem: OptionProblem, level: FloatArray) -> None:
        self._problem = problem
        self.options = len(problem.resource)
        width, classes = len(problem.capacity), problem.classes
        targets = (level * problem.count).nonzero()[0]
        floor = (level * problem.count)[targets]
        lower = [np.full(width, -INFINITY), np.zeros(classes), np.full(classes, -INFINITY)]
        upper = [problem.capacity, np.full(classes, INFINITY), problem.count]
        if problem.extra is not None:
            lower.append(np.maximum(problem.extra.lower, -INFINITY))
            upper.append(np.minimum(problem.extra.upper, INFINITY))
        row_lower, row_upper = np.concatenate(lower), np.concatenate(upper)
        row_lower[width + targets] = floor
        # A column for each level targets for: the part of it that is not reached.
        self._late = problem.count[targets]
        matrix, ends = problem.matrix, 1 + np.arange(len(targets))
        self._matrix = Columns(
            np.append(matrix.start, len(matrix.value) + ends),
            np.append(matrix.row, width + targets),
            np.append(matrix.value, floor),
        )
        self._largest = np.zeros(len(row_lower))
        np.maximum.at(self._largest, self._matrix.row, np.abs(self._matrix.value))
        self._bounds = Bounds(
            np.zeros(self.options + len(targets)),
            np.append(np.full(self.options, INFINITY), np.ones(len(targets))),
            row_lower,
            row_upper,
        )

    def maximise(self, value: FloatArray) -> LinearSolution:
        """Return the vertex of greatest Σ value · y."""
        return self._solve(np.append(-value, np.zeros(len(self._late))))

    def least_shortfall(self) -> LinearSolution:
        """Return the vertex at which the least is missing, counted for every member."""
        return self._solve(np.append(np.zeros(self.options), self._late))

    def least_device_time(self) -> FloatArray:
        """Return options → time that holds what is settled with the least device time."""
        cost = np.append(self._problem.device_time, np.zeros(len(self._late)))
        return self.times(self._solve(cost))

    def settle(self, vertex: LinearSolution) -> bool:
        """Admit from now on only what is as good as a vertex; return whether nothing else is."""
        row_worth = vertex.row_dual * self._largest
        self._bounds, unique = self._bounds.settled(vertex.column_dual, row_worth)
        return unique

    def times(self, vertex: LinearSolution) -> FloatArray:
        """Return options → total time."""
        return vertex.value[: self.options]

    def _solve(self, cost: FloatArray) -> LinearSolution:
        # Costs of order 1, so that tolerances mean the same in every unit.
        scale = float(np.abs(cost).max(initial=0.0)) or 1.0
        vertex = solve_lp(
            LinearProgram(
                cost / scale,
                self._matrix,
                self._bounds.row_lower,
                self._bounds.row_upper,
                self._bounds.lower,
                self._bounds.upper,
            )
        )
        return LinearSolution(
            vertex.objective * scale,
            vertex.value,
            vertex.column_dual * scale,
            vertex.row_dual * scale,
        )


def certificate(
    problem: OptionProblem, value: FloatArray, row_dual: FloatArray, reached: float
) -> Certificate:
    """Return the proof by prices of devices and of members' time: none is worth less than is made.

    For every option value <= size p_j + q_a + q_b, so the sum is at most Σ capacity p + Σ n q.
    Rounding is repaired by raising the members' prices q.
    """
    width, classes = len(problem.capacity), problem.classes
    rows = -row_dual
    rows[: width + 2 * classes] = np.maximum(rows[: width + 2 * classes], 0.0)
    rows[width : width + classes] = 0.0
    bound = problem.worth(rows, np.maximum(value - problem.priced(rows), 0.0))
    return certify(rows[:width], bound, reached)
