"""Time that never goes back, whatever the machine's clock does."""

import time


class Clock:
    """Seconds since the epoch: the wall clock's at the start, the monotonic clock's progress."""

    def __init__(self, not_before: float = 0.0) -> None:
        self._offset = max(time.time(), not_before) - time.monotonic()

    def now(self) -> float:
        """Return the time."""
        return time.monotonic() + self._offset
