"""Time that never goes back, whatever the machine's clock does."""

import time


class Clock:
    """Seconds since the epoch: the wall clock's at the start, the monotonic clock's progress."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def not_before(self, at: float) -> None:
        """Go on from ``at``, should the machine's clock have been set back since."""
        self._offset = max(self._offset, at - time.monotonic())

    def now(self) -> float:
        """Return the time."""
        return time.monotonic() + self._offset
