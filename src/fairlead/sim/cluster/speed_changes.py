"""Leases in the virtual cluster whose speed changes before they end."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.sim.cluster.accounting import Ledger
from fairlead.sim.cluster.progress import JobProgress


@dataclass(slots=True)
class _LeaseStart:
    """What a lease whose speed has changed was like when it began."""

    held_from: float
    works_from: float
    saved: float
    """steps that its last checkpoint holds"""


class SpeedChanges:
    """Enters what jobs have done before their speed changes; remembers how their lease began."""

    def __init__(self, pace: JobProgress, ledger: Ledger, *, checkpoint_s: float) -> None:
        self._pace = pace
        self._ledger = ledger
        self._checkpoint_s = checkpoint_s
        self._settled: dict[int, _LeaseStart] = {}
        """jobs whose speed has changed during their present lease"""
        self.leaving: set[int] = set()
        """jobs that were told to leave and are about it: they make no more steps"""

    def settle(self, job: IntArray, at: float) -> None:
        """Enter into the columns what jobs have done until now."""
        pace = self._pace
        for number in job.tolist():
            if number not in self._settled:
                began = pace.held_from[number], pace.works_from[number], pace.done[number]
                self._settled[number] = _LeaseStart(*map(float, began))
            self._settled[number].saved = self._last_checkpoint(number, at)
        self._ledger.enter(job, at, pace.made(job, at))
        pace.held_from[job] = at
        pace.works_from[job] = np.maximum(pace.works_from[job], at)

    def leave(self, job: IntArray, at: float) -> None:
        """Let jobs make no more steps, though they hold their devices for a while."""
        self.settle(job, at)
        self._pace.rate[job] = 0.0
        self._pace.finish_at[job] = np.inf
        self.leaving.update(job.tolist())

    def forget(self, job: IntArray) -> None:
        """Strike out jobs whose leases have ended."""
        for number in job.tolist() if self._settled else ():
            self._settled.pop(number, None)
            self.leaving.discard(number)

    def held_from(self, job: IntArray) -> FloatArray:
        """Return when the leases of running jobs began."""
        began = self._pace.held_from[job]
        for i, number in enumerate(job.tolist() if self._settled else ()):
            if number in self._settled:
                began[i] = self._settled[number].held_from
        return began

    def restore_checkpointed_steps(self, job: IntArray, at: float, after: FloatArray) -> None:
        """Correct the steps that lost jobs go on from, where their speed has changed before."""
        for i, number in enumerate(job.tolist()):
            if number in self._settled:
                after[i] = self._last_checkpoint(number, at)

    def _last_checkpoint(self, job: int, at: float) -> float:
        """Return the steps that a settled job's last checkpoint before now holds."""
        pace, settled = self._pace, self._settled[job]
        every, begin = self._checkpoint_s, settled.works_from
        last_at = begin + max(at - begin, 0.0) // every * every
        if last_at < pace.works_from[job]:
            return settled.saved
        return float(pace.done[job] + (last_at - pace.works_from[job]) * pace.rate[job])
