"""Passes of jobs as homes and tickets change (§3.1)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fairlead.mechanisms.gandiva_fair.memory import SPREAD
from fairlead.model.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Passes:
    """The passes of all jobs, by the homes and tickets of one quantum; columns over jobs."""

    home: IntArray
    gang: IntArray
    tickets: FloatArray
    at: FloatArray
    aggregate: FloatArray
    """sites → pass of its small jobs together, NaN where no spanning gang competes"""

    def charged(self, quanta: FloatArray) -> "Passes":
        """Return the passes after jobs have held their devices for ``quanta`` each.

        A job's pass moves on by gang / tickets for each quantum, in part for a part of it.
        """
        runs = self.tickets > 0
        stride = np.divide(self.gang, self.tickets, out=np.zeros_like(self.tickets), where=runs)
        at, together = self.at + quanta * stride, self.aggregate
        if not np.isnan(together).all():
            used, tickets = self._by_site(self.gang * quanta), self._by_site(self.tickets)
            step = np.divide(used, tickets, out=np.zeros_like(used), where=tickets > 0)
            together = together + step
        return Passes(self.home, self.gang, self.tickets, at, together)

    def _by_site(self, column: FloatArray) -> FloatArray:
        small = self.home >= 0
        count = len(self.aggregate)
        total: FloatArray = np.bincount(self.home[small], column[small], count).astype(np.float64)
        return total

    def least(self) -> FloatArray:
        """sites → the least pass of its small jobs, infinite without any."""
        least = np.full(len(self.aggregate), np.inf)
        small = self.home >= 0
        np.minimum.at(least, self.home[small], self.at[small])
        return least

    def with_homes(
        self, home: IntArray, tickets: FloatArray, needs: Mapping[int, Mapping[int, int]]
    ) -> "Passes":
        """Return the passes under new homes and tickets.

        A job that stays keeps its distance from the first due, counted in strides: with twice the
        tickets it is due in half the time. A job that arrives joins at the least pass of its new
        home, later by the strides that it was ahead at its old one.
        """
        least, first = self.least(), self._first()
        base = np.where(self.home == SPREAD, first, self.at)
        base = np.where(self.home >= 0, least[self.home], base)
        ahead = (self.at - base) * self.tickets
        ahead = np.divide(ahead, tickets, out=np.zeros_like(ahead), where=tickets > 0)
        new_base = np.where(np.isfinite(least), least, 0.0)
        at = np.where(home >= 0, new_base[home], first) + ahead
        if not needs:
            return Passes(home, self.gang, tickets, at, np.full(len(self.aggregate), np.nan))
        moved = Passes(home, self.gang, tickets, at, self._rescaled(home, tickets, first))
        moved._enter_large(needs, [row for row in needs if self.home[row] != SPREAD])
        return moved

    def _first(self) -> float:
        """Return the least pass among gangs that span sites and what competes with them."""
        known = [*self.at[self.home == SPREAD], *self.aggregate[~np.isnan(self.aggregate)]]
        return float(min(known, default=0.0))

    def _rescaled(self, home: IntArray, tickets: FloatArray, first: float) -> FloatArray:
        """Return sites → pass of the small jobs together, at their distance in strides."""
        before = self._by_site(self.tickets)
        small = home >= 0
        after = np.bincount(home[small], tickets[small], len(self.aggregate)).astype(np.float64)
        ratio = np.divide(before, after, out=np.ones_like(before), where=after > 0)
        rescaled: FloatArray = first + (self.aggregate - first) * ratio
        return rescaled

    def _enter_large(self, needs: Mapping[int, Mapping[int, int]], new: Iterable[int]) -> None:
        """Let new gangs that span sites join at the least pass of those they compete with."""
        together, left = self.aggregate, set(new)
        contested = {site for where in needs.values() for site in where}
        together[[site for site in range(len(together)) if site not in contested]] = np.nan
        for row in sorted(left):
            others = [
                self.at[other]
                for other, where in needs.items()
                if other not in left and not where.keys().isdisjoint(needs[row])
            ]
            here = together[list(needs[row])]
            self.at[row] = min([*others, *here[~np.isnan(here)]], default=self.at[row])
            left.discard(row)
        for row, where in needs.items():
            for site in where:
                if np.isnan(together[site]):
                    together[site] = self.at[row]
