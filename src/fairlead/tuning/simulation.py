"""Simulation of a search: recorded learning curves, a virtual clock and the strategies' own code.

The devices either run a FIFO queue, in which a trial keeps its device until it ends or is stopped,
or share their time among all trials by weight, in slices of one report.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.tuning.strategies.base import LearningCurve, Strategy


@dataclass(frozen=True, slots=True)
class SearchCluster:
    """The devices that a simulated search has, and the discipline by which trials use them."""

    devices: int = 4
    time_sliced: bool = True
    report_s: float = 60.0
    """seconds between two reports of a trial that holds a device"""
    switch_s: float = 0.0
    """seconds that a device loses when it changes to another trial"""


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """Result of a simulated search."""

    found_at: float
    """seconds until a trial reported the target; infinite if none did"""
    trial: int
    """that trial, -1 for none"""
    reports: int
    """reports of all trials until then"""
    seen: int
    """trials with at least one report until then"""


def simulate_search(
    values: FloatArray, strategy: Strategy, target: float, cluster: SearchCluster
) -> SearchOutcome:
    """Return when a search first reports the target; ``values`` is trials × reports."""
    run = _Run(values, strategy, cluster)
    while (device := run.next_device()) is not None:
        trial, value = run.report(device)
        if value >= target:
            return SearchOutcome(run.now, trial, run.reports, run.seen)
        run.assign(device)
    return SearchOutcome(float("inf"), -1, run.reports, run.seen)


class _Run:
    """One simulated search in progress."""

    def __init__(self, values: FloatArray, strategy: Strategy, cluster: SearchCluster) -> None:
        self._values, self._strategy, self._cluster = values, strategy, cluster
        trials = len(values)
        self._curves = [LearningCurve(trial, [], []) for trial in range(trials)]
        self._weight = np.ones(trials)
        self._received = np.zeros(trials)
        self._waits = np.ones(trials, dtype=bool)
        """trials → unfinished and without a device"""
        self._running: list[int | None] = [None] * cluster.devices
        self._free_at = [0.0] * cluster.devices
        self.now, self.reports = 0.0, 0
        for device in range(cluster.devices):
            self.assign(device)

    @property
    def seen(self) -> int:
        """Number of trials with a report."""
        return sum(1 for curve in self._curves if curve.value)

    def next_device(self) -> int | None:
        """Return the device whose trial reports next; None if nothing runs."""
        busy = [device for device, trial in enumerate(self._running) if trial is not None]
        return min(busy, key=lambda device: self._free_at[device], default=None)

    def report(self, device: int) -> tuple[int, float]:
        """Add the next report of a device's trial, and carry out the strategy's decision."""
        trial = self._running[device]
        assert trial is not None
        self.now = self._free_at[device]
        curve = self._curves[trial]
        if curve.has_ended:  # stopped while it ran
            return trial, -float("inf")
        self.reports += 1
        total = self._values.shape[1]
        value = float(self._values[trial, len(curve.value)])
        # The lists of a curve grow in place: a new tuple per report would take quadratic time.
        _append(curve.progress, (len(curve.value) + 1) / total)
        _append(curve.value, value)
        self._received[trial] += 1.0
        if len(curve.value) == total:
            self._end(trial)
        decision = self._strategy.decide(self._curves)
        for stopped in decision.stopped:
            self._end(stopped)
        for other, weight in decision.weight.items():
            self._weight[other] = weight
        return trial, value

    def _end(self, trial: int) -> None:
        self._curves[trial] = replace(self._curves[trial], has_ended=True)
        self._waits[trial] = False

    def assign(self, device: int) -> None:
        """Give a device to the next trial."""
        last = self._running[device]
        unfinished = last is not None and not self._curves[last].has_ended
        if last is not None and unfinished:
            self._waits[last] = True
        self._running[device] = None
        following = last if unfinished and not self._cluster.time_sliced else self._next_trial()
        self._running[device] = following
        if following is None:
            return
        self._waits[following] = False
        cost = 0.0 if following == last else self._cluster.switch_s
        self._free_at[device] = self.now + cost + self._cluster.report_s

    def _next_trial(self) -> int | None:
        """Return the waiting trial that has received the least of its share."""
        waiting = self._waits.nonzero()[0]
        if not len(waiting):
            return None
        if not self._cluster.time_sliced:
            return int(waiting[0])
        weight = self._weight[waiting]
        held = [self._weight[trial] for trial in self._running if trial is not None]
        whole = weight >= _least_whole_weight(np.append(weight, held), self._cluster.devices)
        if whole.any():
            return int(waiting[whole.argmax()])
        return int(waiting[np.argmin((self._received[waiting] + 1.0) / weight)])


def _least_whole_weight(weight: FloatArray, devices: int) -> float:
    """Return the least weight at which a trial has a device to itself; infinite if none has.

    Trials get time in proportion to their weights, but at most one device each: water-filling.
    """
    descending = np.sort(weight)[::-1]
    rest = descending[::-1].cumsum()[::-1]
    left = devices - np.arange(len(descending))
    whole = (left > 0) & (descending * left >= rest)
    return float(descending[whole].min()) if whole.any() else float("inf")


def _append(values: Sequence[float], value: float) -> None:
    assert isinstance(values, list)
    values.append(value)
