"""Matching many rows to slots that come in a few groups, at the least total cost."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray


class Matching:
    """A matching of least cost that grows row by row: Hungarian method over groups of slots.

    A row costs the same in all slots of a group, but for a surcharge of the slot itself, and the
    cheapest slots of a group fill first. So shortest augmenting paths run over the groups (with
    Edmonds and Karp's potentials, Dijkstra's algorithm finds them): the arc g → h costs what the
    row of g that loses least by it loses when it moves to h, and a path ends where one more
    slot is taken.
    """

    def __init__(self, cost: FloatArray, surcharge: Sequence[FloatArray]) -> None:
        """Match rows × groups at this cost (infinite: not allowed).

        ``surcharge`` gives for each group the surcharges of its slots, ascending, none below 0.
        """
        rows, groups = cost.shape
        self._cost = cost
        self._surcharge: list[list[float]] = [[*slots.tolist(), np.inf] for slots in surcharge]
        self._members: list[list[int]] = [[] for _ in range(groups)]
        self._potential = np.zeros(groups)
        self._arc = np.full((groups, groups), np.inf)
        self._who = np.full((groups, groups), -1, dtype=np.int64)
        self.group: IntArray = np.full(rows, -1, dtype=np.int64)
        """rows → group, -1 before it is matched"""

    def add(self, row: int) -> bool:
        """Match one more row at the least cost of all matched; False if there is no slot."""
        path = self._shortest_path(row)
        if path is None:
            return False
        for group, after in pairwise(path):
            moved = int(self._who[group, after])
            self._members[group].remove(moved)
            self._members[group].append(row)
            self.group[row] = group
            row = moved
        self._members[path[-1]].append(row)
        self.group[row] = path[-1]
        for group in path:
            self._look_at(group)
        return True

    def _shortest_path(self, row: int) -> list[int] | None:
        """Return the groups through which room is made for the row; the last takes a slot."""
        potential = self._potential
        reach = self._cost[row].copy()
        """groups → the least cost so far of getting there, -inf once it is settled"""
        pending = reach - potential
        came_from = np.full(len(reach), -1, dtype=np.int64)
        settled: list[tuple[int, float]] = []
        least, end = np.inf, -1
        while True:
            at = int(pending.argmin())
            reduced = float(pending[at])
            if reduced >= least or reduced == np.inf:
                break
            so_far = float(reach[at])
            settled.append((at, reduced))
            with_slot = so_far + self._surcharge[at][len(self._members[at])]
            if with_slot < least:
                least, end = with_slot, at
            pending[at], reach[at] = np.inf, -np.inf
            through = self._arc[at] + so_far
            nearer = (through < reach).nonzero()[0]
            if len(nearer):
                reach[nearer] = nearest = through[nearer]
                pending[nearer] = nearest - potential[nearer]
                came_from[nearer] = at
        if end < 0:
            return None
        for group, reduced in settled:
            potential[group] += reduced - least
        path = [end]
        while came_from[path[-1]] >= 0:
            path.append(int(came_from[path[-1]]))
        return path[::-1]

    def _look_at(self, group: int) -> None:
        members = np.array(self._members[group])
        change = self._cost[members] - self._cost[members, group][:, None]
        best = change.argmin(axis=0)
        self._who[group] = members[best]
        self._arc[group] = change[best, np.arange(len(best))]


def match(cost: FloatArray, surcharge: Sequence[FloatArray], order: IntArray) -> IntArray | None:
    """Return rows → group at the least total cost, None if the rows do not fit.

    Any ``order`` of the rows gives the same cost; one in which later rows seldom displace
    earlier ones is faster.
    """
    matching = Matching(cost, surcharge)
    if all(matching.add(row) for row in order.tolist()):
        return matching.group
    return None
