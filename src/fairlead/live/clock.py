"""Clock that never goes back, even if the machine's clock is set back."""

import time


class Clock:
    """Seconds since the epoch: wall clock at the start, monotonic clock from then on."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def not_before(self, at: float) -> None:
        """Continue from ``at`` if the machine's clock has been set back since."""
        self._offset = max(self._offset, at - time.monotonic())

    def now(self) -> float:
        """Return the time."""
        return time.monotonic() + self._offset
