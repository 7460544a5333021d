"""CPU time told as on one known machine, so that a slower or a busier one breaks no promise.

The same processor may take twice as long from one hour to the next when others share its host.
Fairlead's promises in seconds are about the machine its figures were measured on; elsewhere they
are held against how long a fixed piece of work takes at that moment.
"""

import gc
import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

_YARDSTICK_S = 0.025
"""What the fixed piece of work takes on the machine of the figures."""


def cpu_s(call: Callable[[], _T], *, tries: int = 3) -> tuple[_T, float]:
    """Return what a call returns and its CPU seconds, of several tries the fastest."""
    fastest_s = float("inf")
    gc.collect()
    gc.freeze()  # a test's process may hold millions of objects that are none of the call's
    try:
        for _ in range(tries):
            slower = machine_slowness()
            began = time.process_time()
            result = call()
            fastest_s = min(fastest_s, (time.process_time() - began) / slower)
    finally:
        gc.unfreeze()
    return result, fastest_s


def machine_slowness() -> float:
    """Return how many times as long things take as on the machine of the figures; at least 1."""
    return max(1.0, min(_yardstick_s() for _ in range(2)) / _YARDSTICK_S)


def _yardstick_s() -> float:
    began = time.process_time()
    sums: dict[tuple[int, str], float] = {}
    for number in range(40_000):
        key = (number % 997, str(number % 13))
        sums[key] = sums.get(key, 0.0) + number * 0.5
    sorted(sums.items(), key=lambda item: item[1])
    return time.process_time() - began
