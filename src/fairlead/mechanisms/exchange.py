"""Improving an assignment of rows to a few columns until all of them are used."""

from math import inf

import numpy as np

from fairlead.mechanisms.entries import Entries
from fairlead.model.arrays import IntArray

_LEAST_GAIN = 1e-9
_MOST_EXCHANGES = 64
"""a guard; the gains shrink fast, and later rounds make up for what is left"""


class Exchange:
    """An assignment of rows, each to one of a few columns or to none.

    The columns and one node for "not assigned" form a graph: the arc a → b gains what the best
    row at a adds by moving to b. An assignment is optimal exactly when no circle in this graph
    gains. Rows with one choice only are served best first, so that each column has just one
    next to come and one next to go; only the others are looked at one by one.
    """

    def __init__(self, entries: Entries, gang: IntArray, at: IntArray, free: list[int]) -> None:
        """Take entries in falling order of weight; rows with larger gangs stay as they are."""
        row, column = entries.row, entries.column
        choices = np.bincount(row, minlength=len(gang))
        choices[gang > 1] = 0
        self._free = free
        out = self._out = len(free)
        single = choices[row] == 1
        self._simple: list[IntArray] = []
        """column → rows with that choice only, heaviest first"""
        self._simple_weight: list[list[float]] = []
        self._served: list[int] = []
        for c in range(out):
            mine = (single & (column == c)).nonzero()[0]
            self._simple.append(row[mine])
            self._simple_weight.append(entries.weight[mine].tolist())
            self._served.append(int(np.count_nonzero(at[row[mine]] >= 0)))
        self._weight: list[list[float]] = []
        self._choices: list[list[int]] = []
        self._rows: list[int] = []
        self._members: list[list[int]] = [[] for _ in range(out + 1)]
        """node → contested rows that are there"""
        self._gain = [[-inf] * (out + 1) for _ in range(out + 1)]
        self._who = [[-1] * (out + 1) for _ in range(out + 1)]
        self._changed = set(range(out + 1))
        self._take_in(entries, (choices[row] > 1).nonzero()[0], at)

    def _take_in(self, entries: Entries, contested: IntArray, at: IntArray) -> None:
        row, out = entries.row[contested], self._out
        listed = zip(
            row.tolist(),
            entries.column[contested].tolist(),
            entries.weight[contested].tolist(),
            at[row].tolist(),
            strict=True,
        )
        index: dict[int, int] = {}
        for r, c, w, a in listed:
            i = index.get(r)
            if i is None:
                i = index[r] = len(self._rows)
                self._rows.append(r)
                self._weight.append([0.0] * (out + 1))
                self._choices.append([out])
                self._members[a].append(i)
            self._weight[i][c] = w
            self._choices[i].append(c)

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
        for column, members in enumerate(self._members):
            for i in members:
                result[self._rows[i]] = -1 if column == self._out else column
        for column, (rows, served) in enumerate(zip(self._simple, self._served, strict=True)):
            result[rows] = -1
            result[rows[:served]] = column
        return result

    def _look_at(self, a: int) -> None:
        """Find the best arcs from a: the greatest gains and who has them, -1 for a simple row."""
        out = self._out
        gain = [-inf] * (out + 1)
        who = [-1] * (out + 1)
        if a == out:
            for j, served in enumerate(self._served):
                if served < len(self._simple_weight[j]):
                    gain[j] = self._simple_weight[j][served]
        elif self._free[a]:
            gain[out] = 0.0
        elif self._served[a]:
            gain[out] = -self._simple_weight[a][self._served[a] - 1]
        for i in self._members[a]:
            weights = self._weight[i]
            here = weights[a]
            for b in self._choices[i]:
                more = weights[b] - here
                if more > gain[b] and b != a:
                    gain[b] = more
                    who[b] = i
        self._gain[a], self._who[a] = gain, who

    def _gaining_circle(self) -> list[tuple[int, int, int]] | None:
        """Return the moves of a circle that gains, found by Bellman and Ford's algorithm."""
        for a in self._changed:
            self._look_at(a)
        self._changed = set()
        nodes, who = range(self._out + 1), self._who
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
            circle.append((before, at, who[before][at]))
            at = before
        return circle

    def _move(self, a: int, b: int, row: int) -> None:
        self._changed |= {a, b}
        if row >= 0:
            self._members[a].remove(row)
            self._members[b].append(row)
        elif a == self._out:
            self._served[b] += 1
        elif self._free[a]:
            self._free[a] -= 1
        else:
            self._served[a] -= 1
