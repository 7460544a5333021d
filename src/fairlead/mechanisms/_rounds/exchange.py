"""Improves an assignment of rows to a few columns until all devices are used."""

from bisect import bisect
from math import inf

import numpy as np

from fairlead.mechanisms._rounds.candidates import CandidateEntries
from fairlead.model.arrays import BoolArray

_MIN_GAIN = 1e-9
_MAX_EXCHANGES = 64
"""a guard; gains shrink fast, and later rounds make up for the rest"""
_NOBODY = -1


class AssignmentExchange:
    """An assignment of rows, each to one of a few columns or to none.

    The columns and one node for "not assigned" form a graph: the arc a → b gains what the best
    row at a adds by moving to b. An assignment is optimal exactly when no circle in this graph
    gains. The movers of an arc are listed by rising gain, so that the best is at hand; a row that
    has left the node meanwhile is skipped.
    """

    def __init__(
        self, entries: CandidateEntries, fixed: BoolArray | None, at: list[int], free: list[int]
    ) -> None:
        """Start from rows → column (below 0: none); rows that are ``fixed`` stay there."""
        self._free = free
        self._out = out = len(free)
        self._where = [out if column < 0 else column for column in at]
        """rows → the node where it is"""
        self._moved: set[int] = set()
        self._worth = np.full((len(at), out + 1), -inf)
        """rows × nodes → weight there, minus infinity where it may not be"""
        self._worth[entries.row, entries.column] = entries.weight
        self._worth[:, out] = 0.0
        self._gains: list[list[list[float]]] = []
        """node → node → gains of its movers, rising"""
        self._movers: list[list[list[int]]] = []
        """node → node → movers"""
        self._index_movers(fixed)
        self._best = [[-inf] * (out + 1) for _ in range(out + 1)]
        """node → node → the greatest gain"""
        self._changed = set(range(out + 1))

    def _index_movers(self, fixed: BoolArray | None) -> None:
        where = np.array(self._where)
        if fixed is not None:
            where[fixed] = _NOBODY
        for a in range(self._out + 1):
            rows = (where == a).nonzero()[0]
            if a == self._out:
                rows = rows[::-1]  # of those who wait and gain the same the first is the best
            gains = self._worth[rows]
            gains -= gains[:, a, None].copy()
            gains[:, a] = -inf
            self._movers.append(rows[gains.argsort(axis=0, kind="stable")].T.tolist())
            gains.sort(axis=0)
            self._gains.append(gains.T.tolist())

    def improve(self) -> bool:
        """Exchange rows while a column has room and weight grows; return whether any row moved."""
        for turn in range(_MAX_EXCHANGES):
            circle = self._improving_cycle() if any(self._free) else None
            if circle is None:
                return turn > 0
            for a, b, row in circle:
                self._move(a, b, row)
        return True

    def moved(self) -> dict[int, int]:
        """Return the rows that were moved → column, -1 for none."""
        node = {row: self._where[row] for row in self._moved}
        return {row: -1 if at == self._out else at for row, at in node.items()}

    def _look_at(self, a: int) -> None:
        """Find the greatest gains of moving away from a."""
        where, best = self._where, self._best[a]
        for b, movers in enumerate(self._movers[a]):
            gains = self._gains[a][b]
            while movers and where[movers[-1]] != a:
                movers.pop()
                gains.pop()
            best[b] = gains[-1] if movers else -inf
        if a < self._out and self._free[a]:
            best[self._out] = 0.0

    def _improving_cycle(self) -> list[tuple[int, int, int]] | None:
        """Return the moves of a circle that gains, found by Bellman and Ford's algorithm."""
        for a in self._changed:
            self._look_at(a)
        self._changed = set()
        nodes = range(self._out + 1)
        arcs = [
            (a, b, more)
            for a, gains in enumerate(self._best)
            for b, more in enumerate(gains)
            if more > -inf
        ]
        best = [0.0] * (self._out + 1)
        came_from = [-1] * (self._out + 1)
        last = -1
        for _ in nodes:
            last = -1
            for a, b, more in arcs:
                if best[a] + more > best[b] + _MIN_GAIN:
                    best[b] = best[a] + more
                    came_from[b] = a
                    last = b
            if last < 0:
                return None
        for _ in nodes:  # walk back far enough to stand on the circle itself
            last = came_from[last]
        circle: list[tuple[int, int, int]] = []
        at = last
        while not circle or at != last:
            before = came_from[at]
            circle.append((before, at, self._mover(before, at)))
            at = before
        return circle

    def _mover(self, a: int, b: int) -> int:
        if b == self._out and self._free[a]:
            return _NOBODY
        return self._movers[a][b][-1]

    def _move(self, a: int, b: int, row: int) -> None:
        self._changed |= {a, b}
        if row == _NOBODY:
            self._free[a] -= 1
            return
        self._where[row] = b
        self._moved.add(row)
        worth: list[float] = self._worth[row].tolist()
        for c, there in enumerate(worth):
            if c != b and there > -inf:
                self._list(b, c, there - worth[b], row)

    def _list(self, a: int, b: int, gain: float, row: int) -> None:
        """List one more row that could move, in its place among those that gain the same."""
        gains, movers = self._gains[a][b], self._movers[a][b]
        at = bisect(gains, gain)
        while at and gains[at - 1] == gain and (movers[at - 1] > row) == (a < self._out):
            at -= 1
        gains.insert(at, gain)
        movers.insert(at, row)
