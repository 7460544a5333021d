"""Speed of a run: steps per second, with a 95 % confidence interval.

``fairlead profile`` sets ``FAIRLEAD_PROFILE``. A run then measures its steps, reports their speed
and ends the program.
"""

import json
import math
import os
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from fairlead.job.leased_run import LeasedRun
from fairlead.job.run import Run

VARIABLE = "FAIRLEAD_PROFILE"
"""environment variable with the numbers of steps to warm up and to measure: ``20:200``"""
FILE_VARIABLE = "FAIRLEAD_PROFILE_FILE"
"""environment variable with the file to which a run without a server writes its speed"""
BLOCKS = 20
"""groups of steps whose mean times give the interval"""
METRICS = ("profile/steps_per_s", "profile/low", "profile/high")
_T = 2.093
"""quantile of Student's t distribution: 97.5 %, BLOCKS - 1 degrees of freedom"""


class Speed(NamedTuple):
    """A measured speed in steps per second, and its 95 % confidence interval."""

    steps_per_s: float
    low: float
    high: float


class StepTimer:
    """Measures the time between the ends of steps, in blocks."""

    def __init__(
        self, warmup: int, steps: int, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Measure ``steps``, at least one for each block, after those that warm up."""
        if warmup < 1 or steps < BLOCKS:
            raise ValueError(f"{VARIABLE}: expected WARMUP:STEPS, at least 1:{BLOCKS}")
        self._clock = clock
        self._edges = [warmup + round(steps * i / BLOCKS) for i in range(BLOCKS + 1)]
        self._steps = 0
        self._ends: list[float] = []
        """time at the end of the warm-up and of each block"""

    def step_ended(self) -> Speed | None:
        """Count a step; return the speed after the last one."""
        self._steps += 1
        if self._steps != self._edges[len(self._ends)]:
            return None
        _synchronize()  # work of a GPU that still runs belongs to this block
        self._ends.append(self._clock())
        return self._speed() if len(self._ends) == len(self._edges) else None

    def _speed(self) -> Speed:
        steps = self._edges[-1] - self._edges[0]
        step_s = max((self._ends[-1] - self._ends[0]) / steps, 1e-12)
        blocks = [
            (self._ends[i + 1] - self._ends[i]) / (self._edges[i + 1] - self._edges[i])
            for i in range(BLOCKS)
        ]
        half_s = _T * statistics.stdev(blocks) / math.sqrt(BLOCKS)
        # An interval of times that reaches 0 has no upper speed: ten times the mean is far off.
        return Speed(1 / step_s, 1 / (step_s + half_s), 1 / max(step_s - half_s, step_s / 10))


class _ProfiledSteps(Run, ABC):
    """Measures the steps of a run, and ends the program after the last one."""

    def __init__(self, environment: Mapping[str, str], *arguments: Any) -> None:
        super().__init__(*arguments)
        warmup, _, steps = environment[VARIABLE].partition(":")
        self._timer = StepTimer(int(warmup), int(steps))

    def end_step(self) -> None:
        """Count a step; after the last one report the speed and exit."""
        super().end_step()
        speed = self._timer.step_ended()
        if speed is not None:
            self._exit_with(speed)

    @abstractmethod
    def _exit_with(self, speed: Speed) -> NoReturn:
        """Report the speed and end the program."""


class ProfiledRun(_ProfiledSteps):
    """A plain run that writes its speed to a file."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(environment)
        self._file = environment.get(FILE_VARIABLE)

    def _exit_with(self, speed: Speed) -> NoReturn:
        if self._file and int(os.environ.get("RANK", "0")) == 0:
            with open(self._file, "w", encoding="ascii") as file:
                json.dump(speed._asdict(), file)
        raise SystemExit(0)


class ProfiledLeasedRun(_ProfiledSteps, LeasedRun):
    """A run under a lease that reports its speed as metrics; nothing is saved."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(environment, int(environment["FAIRLEAD_LEASE"]), environment)

    def _exit_with(self, speed: Speed) -> NoReturn:
        if self.rank == 0:
            self.report(**dict(zip(METRICS, speed, strict=True)))
        self._lease.close()
        raise SystemExit(0)


def attach_profiled(environment: Mapping[str, str]) -> Run:
    """Return a run that measures its speed, under a lease if the scheduler started it."""
    if environment.get("FAIRLEAD_LEASE"):
        return ProfiledLeasedRun(environment)
    return ProfiledRun(environment)


def _synchronize() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
