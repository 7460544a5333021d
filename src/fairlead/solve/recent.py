"""Recent solutions of a solver: an input that comes again is not solved again."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from fairlead.model.arrays import FloatArray

S = TypeVar("S")

_LIMIT = 512


class RecentSolutions(Generic[S]):
    """Calls a solver that depends on its arguments alone, and keeps its last solutions.

    Allocations of tenants depend on their workloads, not on the number of jobs, so most arrivals
    and completions leave the input as it was.
    """

    def __init__(self, solve: Callable[..., S]) -> None:
        self._solve = solve
        self._solutions: dict[Hashable, S] = {}

    def solve(
        self, gain: FloatArray, weight: FloatArray, capacity: FloatArray, *more: Hashable
    ) -> S:
        """Return the solver's solution, computed now or kept."""
        key = (gain.shape, gain.tobytes(), weight.tobytes(), capacity.tobytes(), more)
        solution = self._solutions.pop(key, None)
        if solution is None:
            solution = self._solve(gain, weight, capacity, *more)
        self._solutions[key] = solution  # the most recent one is last
        if len(self._solutions) > _LIMIT:
            del self._solutions[next(iter(self._solutions))]
        return solution
