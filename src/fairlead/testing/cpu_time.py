"""CPU time normalised to one reference machine, so that slow or busy hosts pass time limits.

The same processor may take twice as long from one hour to the next on a shared host. Fairlead's
time limits hold on the machine of its published figures; elsewhere measured times are divided by
the current duration of a fixed piece of work, relative to that machine.
"""

import gc
import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

_YARDSTICK_S = 0.025
"""seconds of the fixed piece of work on the reference machine"""


def cpu_s(call: Callable[[], _T], *, tries: int = 3) -> tuple[_T, float]:
    """Return the result of a call and the CPU seconds of the fastest of several tries."""
    fastest_s = float("inf")
    gc.collect()
    freezes = gc.get_freeze_count() == 0
    if freezes:
        gc.freeze()  # keep a test process's other objects out of collections
    try:
        for _ in range(tries):
            slowness = machine_slowness()
            began = time.process_time()
            result = call()
            fastest_s = min(fastest_s, (time.process_time() - began) / slowness)
    finally:
        if freezes:
            gc.unfreeze()
    return result, fastest_s


def machine_slowness() -> float:
    """Return the current duration of work relative to the reference machine, at least 1."""
    return max(1.0, min(_yardstick_s() for _ in range(2)) / _YARDSTICK_S)


def _yardstick_s() -> float:
    began = time.process_time()
    sums: dict[tuple[int, str], float] = {}
    for number in range(40_000):
        key = (number % 997, str(number % 13))
        sums[key] = sums.get(key, 0.0) + number * 0.5
    sorted(sums.items(), key=lambda item: item[1])
    return time.process_time() - began
