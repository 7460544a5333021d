"""Ranks of passes: who is due first, where passes that agree to some decimals are equal."""

import numpy as np

from fairlead.compiled import compiled
from fairlead.model.arrays import FloatArray

_MAX_RANK = 2.0**51
"""ranks below this are exact, with a bit to spare for the half"""


def pass_ranks(passes: FloatArray, decimals: int) -> FloatArray:
    """Return numbers that compare as the passes do when rounded to these decimals."""
    if compiled is not None:
        in_c = np.empty(len(passes))
        if compiled.pass_ranks(np.ascontiguousarray(passes), decimals, in_c):
            return in_c
    scaled = passes * 10.0**decimals
    most = float(np.abs(scaled).max(initial=1.0))
    if not most < _MAX_RANK:
        return np.array([round(at, decimals) for at in passes.tolist()])
    ranks: FloatArray = np.rint(scaled)
    # The product is off by half a unit in its last place at most; only so close to a half does
    # its nearest integer differ from the decimal rounding of the pass.
    unsure = np.abs(np.abs(scaled - ranks) - 0.5) <= most * 2.0**-52
    for i in unsure.nonzero()[0].tolist():
        ranks[i] = round(round(float(passes[i]), decimals) * 10.0**decimals)
    return ranks
