"""Writes checkpoints behind training: the loop pauses only while the state is copied."""

import threading
from collections.abc import Callable


class BackgroundWriter:
    """Runs one write at a time in a thread, which does not keep a failed program alive."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a write has not ended."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, write: Callable[[], None]) -> None:
        """Start a write; the one before must have ended, see ``wait``."""
        self._thread = threading.Thread(
            target=self._run, args=(write,), name="fairlead-checkpoint", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until the last write has ended; raise its error, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as error:
            self._error = error
