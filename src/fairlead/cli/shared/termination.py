"""SIGTERM as an exception, so that commands undo what they have begun."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def exit_on_sigterm() -> None:
    """Make SIGTERM raise SystemExit, so that ``finally`` blocks run."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


@contextmanager
def sigterm_deferred() -> Iterator[None]:
    """Defer a SIGTERM that arrives inside to the end."""
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if received:
            signal.raise_signal(signal.SIGTERM)
