"""Improving an assignment of rows to a few columns until all of them are used."""

from bisect import insort
from math import inf

from fairlead.mechanisms.entries import Entries
from fairlead.model.arrays import IntArray

_LEAST_GAIN = 1e-9
_MOST_EXCHANGES = 64
"""a guard; the gains shrink fast, and later rounds make up for what is left"""
_NOBODY = -1


class Exchange:
    """An assignment of rows, each to one of a few columns or to none.

    The columns and one node for "not assigned" form a graph: the arc a → b gains what the best
    row at a adds by moving to b. An assignment is optimal exactly when no circle in this graph
    gains. Who could move along an arc is listed by rising gain, so that the best is at hand; who
    has left the node meanwhile is passed over.
    """

    def __init__(
        self, entries: Entries, gang: IntArray | None, at: IntArray, free: list[int]
    ) -> None:
        """Take entries in falling order of weight; rows with larger gangs stay as they are."""
        self._entries, self._free = entries, free
        out = self._out = len(free)
        self._where = [out if column < 0 else column for column in at.tolist()]
        """rows → the node where it is"""
        self._moved: set[int] = set()
        fixed = () if gang is None else (gang > 1).nonzero()[0].tolist()
        self._movers = self._by_arc(set(fixed))
        """node → node → (gain, row)"""
        self._gain = [[-inf] * (out + 1) for _ in range(out + 1)]
        self._changed = set(range(out + 1))

    def _by_arc(self, fixed: set[int]) -> list[list[list[tuple[float, int]]]]:
        out, where = self._out, self._where
        movers: list[list[list[tuple[float, int]]]] = [
            [[] for _ in range(out + 1)] for _ in range(out + 1)
        ]
        own: dict[int, float] = {}
        between = []
        for r, c, w in zip(*(part.tolist() for part in self._entries), strict=True):
            a = where[r]
            if r in fixed:
                continue
            if a == c:
                own[r] = w
                movers[c][out].append((-w, r))
            elif a == out:
                movers[out][c].append((w, r))
            else:
                between.append((r, a, c, w))
        for column in movers[out]:
            column.reverse()
        for r, a, c, w in between:
            insort(movers[a][c], (w - own[r], r))
        return movers

    def improve(self) -> bool:
        """Exchange rows while a column has room and that adds weight; tell if anything changed."""
        for turn in range(_MOST_EXCHANGES):
            circle = self._gaining_circle() if any(self._free) else None
            if circle is None:
                return turn > 0
            for a, b, row in circle:
                self._move(a, b, row)
        return True

    def assignment(self, at: IntArray) -> IntArray:
        """Return rows → column (-1: none), the other rows as they were."""
        result = at.copy()
        for row in self._moved:
            node = self._where[row]
            result[row] = -1 if node == self._out else node
        return result

    def _look_at(self, a: int) -> None:
        """Find the greatest gains of moving away from a."""
        where, gains = self._where, self._gain[a]
        for b, movers in enumerate(self._movers[a]):
            while movers and where[movers[-1][1]] != a:
                movers.pop()
            gains[b] = movers[-1][0] if movers else -inf
        if a < self._out and self._free[a]:
            gains[self._out] = 0.0

    def _gaining_circle(self) -> list[tuple[int, int, int]] | None:
        """Return the moves of a circle that gains, found by Bellman and Ford's algorithm."""
        for a in self._changed:
            self._look_at(a)
        self._changed = set()
        nodes = range(self._out + 1)
        arcs = [
            (a, b, more)
            for a, gains in enumerate(self._gain)
            for b, more in enumerate(gains)
            if more > -inf
        ]
        best = [0.0] * (self._out + 1)
        came_from = [-1] * (self._out + 1)
        last = -1
        for _ in nodes:
            last = -1
            for a, b, more in arcs:
                if best[a] + more > best[b] + _LEAST_GAIN:
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
        return self._movers[a][b][-1][1]

    def _move(self, a: int, b: int, row: int) -> None:
        self._changed |= {a, b}
        if row == _NOBODY:
            self._free[a] -= 1
            return
        self._where[row] = b
        self._moved.add(row)
        mine = (self._entries.row == row).nonzero()[0]
        column, worth = self._entries.column[mine], self._entries.weight[mine]
        weight = dict(zip(column.tolist(), worth.tolist(), strict=True))
        weight[self._out] = 0.0
        for c, there in weight.items():
            if c != b:
                insort(self._movers[b][c], (there - weight[b], row))
