"""Estimates of the time that jobs still need: declared lengths, or service attained so far."""

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.snapshot import FIRST_S, Snapshot

_LEAST_S = 60.0
"""shortest time left that counts: seconds do not decide between jobs about to end"""
_OVERRUN = 0.1
"""least time left relative to the time used: declared lengths may be wrong"""


def estimate_left_s(snap: Snapshot, fastest: FloatArray, *, attained: bool) -> FloatArray:
    """Return jobs → estimated seconds left on its fastest accelerator.

    ``fastest`` is jobs → steps per second there. With ``attained`` the declared lengths are
    ignored: a job is expected to need as long again as it has used, which is the mean of
    heavy-tailed lengths. Otherwise the declared length counts, but a job that has made most of
    its steps is expected to need at least a part of the time it has used.
    """
    used_s = snap.steps / fastest
    if attained:
        left_s: FloatArray = np.maximum(used_s, FIRST_S)
    else:
        left_s = np.maximum(snap.steps_left / fastest, _OVERRUN * used_s)
    return np.maximum(left_s, _LEAST_S)
