"""Less looking for garbage where little is made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_AFTER = 50_000
"""how many more objects there are before somebody looks; usually that is 700"""


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """Look for objects that refer to each other now and then only: it takes up to a tenth."""
    before = gc.get_threshold()
    gc.set_threshold(_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
