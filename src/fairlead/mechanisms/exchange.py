"""Improving an assignment of rows to a few columns until no exchange adds weight."""

from math import inf

from fairlead.model.arrays import FloatArray, IntArray

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

    def __init__(
        self,
        row: IntArray,
        column: IntArray,
        weight: FloatArray,
        choices: IntArray,
        at: IntArray,
        free: list[int],
    ) -> None:
        """Take entries in falling order of weight, and how many each row has (0: keep as is)."""
        self._free = free
        out = self._out = len(free)
        self._simple: list[list[tuple[float, int]]] = [[] for _ in free]
        self._served = [0] * out
        self._weight: list[list[float]] = []
        self._at: list[int] = []
        self._rows: list[int] = []
        index: dict[int, int] = {}
        entries = zip(
            row.tolist(),
            column.tolist(),
            weight.tolist(),
            choices[row].tolist(),
            at[row].tolist(),
            strict=True,
        )
        for r, c, w, n, a in entries:
            if n == 1:
                self._simple[c].append((w, r))
                self._served[c] += a >= 0
            elif n:
                i = index.get(r)
                if i is None:
                    i = index[r] = len(self._rows)
                    self._rows.append(r)
                    self._weight.append([-inf] * out + [0.0])
                    self._at.append(out if a < 0 else a)
                self._weight[i][c] = w

    def improve(self) -> bool:
        """Exchange rows until that adds nothing more; tell whether anything has changed."""
        for turn in range(_MOST_EXCHANGES):
            circle = self._gaining_circle()
            if circle is None:
                return turn > 0
            for a, b, row in circle:
                self._move(a, b, row)
        return True

    def assignment(self, at: IntArray) -> IntArray:
        """Return rows → column (-1: none), the other rows as they were."""
        result = at.copy()
        for row, column in zip(self._rows, self._at, strict=True):
            result[row] = -1 if column == self._out else column
        for column, ranked in enumerate(self._simple):
            for rank, (_, row) in enumerate(ranked):
                result[row] = column if rank < self._served[column] else -1
        return result

    def _arcs(self) -> tuple[list[list[float]], list[list[int]]]:
        """Return from × to: the greatest gain, and the contested row that has it, -1 for none."""
        out = self._out
        gain = [[-inf] * (out + 1) for _ in range(out + 1)]
        who = [[-1] * (out + 1) for _ in range(out + 1)]
        for j in range(out):
            ranked, served = self._simple[j], self._served[j]
            if served < len(ranked):
                gain[out][j] = ranked[served][0]
            if served:
                gain[j][out] = -ranked[served - 1][0]
            if self._free[j]:
                gain[j][out] = 0.0
        for i, (weights, a) in enumerate(zip(self._weight, self._at, strict=True)):
            here, row_gain, row_who = weights[a], gain[a], who[a]
            for b, there in enumerate(weights):
                if there - here > row_gain[b] and b != a:
                    row_gain[b] = there - here
                    row_who[b] = i
        return gain, who

    def _gaining_circle(self) -> list[tuple[int, int, int]] | None:
        """Return the moves of a circle that gains, found by Bellman and Ford's algorithm."""
        gain, who = self._arcs()
        nodes = range(self._out + 1)
        best = [0.0] * (self._out + 1)
        came_from = [-1] * (self._out + 1)
        last = -1
        for _ in nodes:
            last = -1
            for a in nodes:
                for b in nodes:
                    if best[a] + gain[a][b] > best[b] + _LEAST_GAIN:
                        best[b] = best[a] + gain[a][b]
                        came_from[b] = a
                        last = b
            if last < 0:
                return None
        for _ in nodes:  # walk back far enough to stand on the circle itself
            last = came_from[last]
        circle = []
        at = last
        while not circle or at != last:
            before = came_from[at]
            circle.append((before, at, who[before][at]))
            at = before
        return circle

    def _move(self, a: int, b: int, row: int) -> None:
        if row >= 0:
            self._at[row] = b
        elif a == self._out:
            self._served[b] += 1
        elif self._free[a]:
            self._free[a] -= 1
        else:
            self._served[a] -= 1
