"""Work ahead of need: done by a thread in small pieces with pauses, so that training continues."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress

_PAUSE = 1.0
"""pause after a piece, in times of what the piece took"""


class Ahead:
    """Runs one task at a time, and stops it between two pieces."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def begin(self, pieces: Iterator[None]) -> None:
        """Start a task; the one before must have ended, see ``stop``.

        Its errors end it and are not reported: the caller does the rest when it is needed.
        """
        self._stopping.clear()
        self._thread = threading.Thread(
            target=self._run, args=(pieces,), name="fairlead-ahead", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop the task after its present piece, and wait until it has stopped."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def wait(self) -> None:
        """Wait until the task is done."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, pieces: Iterator[None]) -> None:
        began = time.monotonic()
        with suppress(OSError, RuntimeError, MemoryError):
            for _ in pieces:
                if self._stopping.wait(_PAUSE * (time.monotonic() - began)):
                    return
                began = time.monotonic()
