"""Process that measures workloads on one device, by commands on its standard input.

``{"prepare": "cnn-64"}`` builds a workload and warms it up; ``{"measure": 2.0}`` makes steps for
that many seconds and answers with the speed. Each command is answered by one line of JSON.
"""

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from benchmarks.physical.workloads import build

from fairlead.job.profile import Speed

_WARMUP, _TIMED = 8, 4
"""steps before a measurement: first ones, and those that tell how long a step takes"""
_BLOCKS = 20
"""groups of steps that a measurement of a job alone has, about"""
_Z = 1.959964
"""97.5 % quantile of the normal distribution"""


def block_speed(steps: int, block_s: Sequence[float]) -> Speed:
    """Return the speed and its 95 % interval from the seconds of blocks of ``steps`` steps."""
    step_s = [seconds / steps for seconds in block_s]
    mean_s = max(statistics.fmean(step_s), 1e-12)
    spread = statistics.stdev(step_s) if len(step_s) > 1 else mean_s
    half_s = _student_t(max(len(step_s) - 1, 1)) * spread / math.sqrt(len(step_s))
    return Speed(1 / mean_s, 1 / (mean_s + half_s), 1 / max(mean_s - half_s, mean_s / 10))


def _student_t(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t distribution (Abramowitz and Stegun, 26.7.5)."""
    first = (_Z**3 + _Z) / 4
    second = (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96
    third = (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / 384
    return _Z + first / freedom + second / freedom**2 + third / freedom**3


class Worker:
    """The workload in preparation or under measurement."""

    def __init__(self) -> None:
        self._cuda = torch.cuda.is_available()
        self._step: Callable[[], Any] = lambda: None
        self._step_s = 0.0

    def prepare(self, workload: str) -> dict[str, float]:
        """Build a workload and make its first steps; return the seconds of one."""
        self._step = lambda: None  # frees the memory of the last workload
        if self._cuda:
            torch.cuda.empty_cache()
        self._step = build(workload, "cuda" if self._cuda else "cpu").step
        self._make(_WARMUP)
        self._step_s = self._make(_TIMED) / _TIMED
        return {"step_s": self._step_s}

    def measure(self, seconds: float) -> dict[str, float]:
        """Make steps for about ``seconds``; return their speed."""
        steps = max(round(seconds / _BLOCKS / self._step_s), 1)
        until, block_s = time.perf_counter() + seconds, []
        while time.perf_counter() < until:
            block_s.append(self._make(steps))
        return block_speed(steps, block_s)._asdict()

    def _make(self, steps: int) -> float:
        """Return the seconds for a number of steps."""
        began = time.perf_counter()
        for _ in range(steps):
            self._step()
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began


def main() -> None:
    worker = Worker()
    for line in sys.stdin:
        ((command, argument),) = json.loads(line).items()
        answer = worker.prepare(argument) if command == "prepare" else worker.measure(argument)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
