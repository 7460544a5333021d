"""First guess of relative speeds from data sheets, before anything was measured."""

import math

from fairlead.estimate.data_sheet import DataSheet

EXPONENTS = (0.25, 0.1, 0.65)
"""of single-precision operations, matrix operations and memory bandwidth (design note)"""


def log_device_speed(sheet: DataSheet) -> float:
    """Return the natural logarithm of a device's guessed speed; only differences mean anything.

    A training step is bound by arithmetic or by memory, in parts that vary between workloads:
    the guess is the geometric mean of both, with the exponents of an average workload.
    """
    weighted = zip(EXPONENTS, sheet.features, strict=True)
    return math.log(2.0) * sum(exponent * feature for exponent, feature in weighted)
