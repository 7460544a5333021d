"""Recent solutions of a solver: an input that comes again is not solved again."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from fairlead.model.arrays import FloatArray

S = TypeVar("S")

_LIMIT = 512
_BYTE_LIMIT = 50_000_000
"""memory of all inputs and solutions; a solution is taken to be as large as its input"""


class RecentSolutions(Generic[S]):
    """Calls a solver that depends on its arguments alone, and keeps its last solutions.

    Allocations of tenants depend on their workloads, not on the number of jobs, so most arrivals
    and completions leave the input as it was.
    """

    def __init__(self, solve: Callable[..., S]) -> None:
        self._solve = solve
        self._solutions: dict[tuple[Hashable, ...], S] = {}
        self._bytes = 0

    def solve(
        self, gain: FloatArray, weight: FloatArray, capacity: FloatArray, *more: Hashable
    ) -> S:
        """Return the solver's solution, computed now or kept."""
        key = (gain.shape, gain.tobytes(), weight.tobytes(), capacity.tobytes(), more)
        solution = self._solutions.pop(key, None)
        if solution is None:
            solution = self._solve(gain, weight, capacity, *more)
            self._bytes += _size(key)
        self._solutions[key] = solution  # the most recent one is last
        while len(self._solutions) > _LIMIT or (
            self._bytes > _BYTE_LIMIT and len(self._solutions) > 1
        ):
            oldest = next(iter(self._solutions))
            del self._solutions[oldest]
            self._bytes -= _size(oldest)
        return solution


def _size(key: tuple[Hashable, ...]) -> int:
    """Return the bytes of an input and its solution."""
    return 2 * sum(len(part) for part in key if isinstance(part, bytes))
