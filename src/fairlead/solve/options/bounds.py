"""Bounds of a program's columns and rows, narrowed to one optimal face after another."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray

# Duals above this, relative to the greatest, are prices; below it they are noise.
_PRICED = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Bounds of columns and of rows."""

    lower: FloatArray
    upper: FloatArray
    row_lower: FloatArray
    row_upper: FloatArray

    def settled(self, column_dual: FloatArray, row_worth: FloatArray) -> tuple["Bounds", bool]:
        """Return bounds that admit only what is as good as a vertex, and whether nothing else is.

        By complementary slackness, that is all that leaves at its bound whatever has a price.
        ``row_worth`` is a row's price times what the column that uses most of it does, so that
        rows and columns are measured against the same greatest price.
        """
        worth = np.abs(np.concatenate([column_dual, row_worth]))
        least = _PRICED * float(worth.max(initial=0.0))
        bounds = Bounds(
            *_fixed_where_priced(self.lower, self.upper, column_dual, least),
            *_fixed_where_priced(self.row_lower, self.row_upper, row_worth, least),
        )
        # A vertex has as many nonbasic columns and rows as there are columns. If each of these
        # has a price, they are fixed, and with them the basic ones.
        return bounds, int(np.count_nonzero(worth > least)) >= len(self.lower)


def _fixed_where_priced(
    lower: FloatArray, upper: FloatArray, price: FloatArray, least: float
) -> tuple[FloatArray, FloatArray]:
    """Return the bounds with whatever has a price held at the one that it is priced for.

    Nothing is ever at an infinite bound, so a price for one is noise.
    """
    at_lower = (price > least) & np.isfinite(lower)
    at_upper = (price < -least) & np.isfinite(upper)
    return np.where(at_upper, upper, lower), np.where(at_lower, lower, upper)
