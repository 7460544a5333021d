"""Speed of an emulated accelerator."""

import time

_MAX_LAG_S = 1.0
"""longest lag behind an emulated speed that later steps make up for"""


class EmulatedSpeed:
    """Slows steps down to the speed of an emulated accelerator; does nothing on a real one."""

    def __init__(self, steps_per_s: float) -> None:
        self._due = 0.0
        self.set_speed(steps_per_s)

    def set_speed(self, steps_per_s: float) -> None:
        """Continue at another speed: a partner came to the emulated accelerator, or left it."""
        self._step_s = 1.0 / steps_per_s if steps_per_s > 0 else 0.0

    def begin_step(self) -> None:
        """Start a step."""
        if self._step_s:
            now = time.monotonic()
            # Slow steps are made up for, a pause is not.
            if now - self._due > _MAX_LAG_S:
                self._due = now

    def end_step(self) -> None:
        """Wait until the step has taken as long as on the emulated accelerator."""
        if self._step_s:
            self._due += self._step_s
            rest = self._due - time.monotonic()
            if rest > 0:
                time.sleep(rest)
