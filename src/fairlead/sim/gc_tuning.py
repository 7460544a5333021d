"""Less frequent garbage collection during simulations."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLD = 50_000
"""net new objects before a collection of the youngest generation; Python's default is 700"""


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """Run the cyclic garbage collector rarely.

    It takes up to a tenth of a simulation's time, and of the time to load modules.
    """
    before = gc.get_threshold()
    gc.set_threshold(_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
