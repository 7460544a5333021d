"""Array types of all tables."""

from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

NO_INTS: IntArray = np.zeros(0, dtype=np.int64)
NO_INTS.flags.writeable = False
NO_FLOATS: FloatArray = np.zeros(0)
NO_FLOATS.flags.writeable = False


def is_among(values: npt.NDArray[Any], ascending: npt.NDArray[Any]) -> BoolArray:
    """Return which of the values are among these, faster than np.isin because they ascend."""
    if not len(ascending):
        return np.zeros(values.shape, dtype=bool)
    at = np.minimum(ascending.searchsorted(values), len(ascending) - 1)
    among: BoolArray = ascending[at] == values
    return among
