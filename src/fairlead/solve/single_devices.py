"""Single devices of greatest value: the program over jobs that hold one device each."""

import numpy as np

from fairlead.compiled import compiled
from fairlead.model.arrays import FloatArray, IntArray

_MARGIN = 1e-6
"""least lead over all other choices, relative to the greatest value: programs tolerate less"""
_MAX_WORK = 4_000_000
"""rows × devices up to which it is worth serving one row after the other"""


def best_single_devices(value: FloatArray, capacity: FloatArray) -> IntArray | None:
    """Return rows → column, -1 for none, with the greatest sum of values; None if others are near.

    ``value`` is rows × columns; a row uses columns of value above 0 only. A row has one device,
    and a column at most its capacity. With whole capacities such a program has a whole optimum. It
    is found by serving one row more at a time where that adds most while others move to make room
    (successive shortest paths over the columns). None also where that is not compiled or too slow.
    """
    devices = capacity.astype(np.int64)
    served = min(len(value), int(devices.sum()))
    if compiled is None or served * len(value) > _MAX_WORK or (devices != capacity).any():
        return None
    chosen = np.empty(len(value), dtype=np.int64)
    margin = _MARGIN * float(value.max(initial=0.0))
    only = compiled.match_singles(np.ascontiguousarray(value), devices, margin, chosen)
    return chosen if only else None
