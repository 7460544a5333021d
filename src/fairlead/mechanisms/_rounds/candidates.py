"""Candidate (row, column) entries of a round with their weights."""

from typing import NamedTuple

from fairlead.model.arrays import BoolArray, FloatArray, IntArray


class CandidateEntries(NamedTuple):
    """Rows that may run on columns, as a list of pairs with the weight of each."""

    row: IntArray
    column: IntArray
    weight: FloatArray

    def by_falling_weight(self) -> "CandidateEntries":
        """Return the entries by falling weight, equal ones in the order they had."""
        order = (-self.weight).argsort(kind="stable")
        return CandidateEntries(self.row[order], self.column[order], self.weight[order])

    def where(self, keep: BoolArray) -> "CandidateEntries":
        """Return the entries for which ``keep`` holds."""
        return CandidateEntries(self.row[keep], self.column[keep], self.weight[keep])
