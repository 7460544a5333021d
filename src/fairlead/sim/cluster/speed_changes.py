"""Leases in the virtual cluster whose speed changes before they end."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.sim.cluster.accounting import ProgressLedger
from fairlead.sim.cluster.progress import JobProgress


@dataclass(slots=True)
class _LeaseStart:
    """Values at the start of a lease whose speed has changed since."""

    held_from: float
    progress_from: float
    saved: float
    """steps of the last checkpoint"""


class SpeedChanges:
    """Credits progress before a job's speed changes, and keeps the start of its lease."""

    def __init__(
        self, progress: JobProgress, ledger: ProgressLedger, *, checkpoint_s: float
    ) -> None:
        self._progress = progress
        self._ledger = ledger
        self._checkpoint_s = checkpoint_s
        self._changed: dict[int, _LeaseStart] = {}
        """job → start of its lease, for jobs whose speed has changed during it"""
        self.leaving: set[int] = set()
        """preempted jobs that still hold their devices and make no more steps"""

    def record_progress(self, job: IntArray, at: float) -> None:
        """Credit jobs with their progress so far and continue from here."""
        progress = self._progress
        for number in job.tolist():
            if number not in self._changed:
                began = (
                    progress.held_from[number],
                    progress.progress_from[number],
                    progress.done[number],
                )
                self._changed[number] = _LeaseStart(*map(float, began))
            self._changed[number].saved = self._last_checkpoint(number, at)
        self._ledger.credit(job, at, progress.steps_at(job, at))
        progress.held_from[job] = at
        progress.progress_from[job] = np.maximum(progress.progress_from[job], at)

    def start_leaving(self, job: IntArray, at: float) -> None:
        """Stop the progress of jobs that still hold their devices for a while."""
        self.record_progress(job, at)
        self._progress.rate[job] = 0.0
        self._progress.finish_at[job] = np.inf
        self.leaving.update(job.tolist())

    def forget(self, job: IntArray) -> None:
        """Remove jobs whose leases have ended."""
        for number in job.tolist() if self._changed else ():
            self._changed.pop(number, None)
            self.leaving.discard(number)

    def held_from(self, job: IntArray) -> FloatArray:
        """Return the start times of the leases of running jobs."""
        began = self._progress.held_from[job]
        for i, number in enumerate(job.tolist() if self._changed else ()):
            if number in self._changed:
                began[i] = self._changed[number].held_from
        return began

    def restore_checkpointed_steps(self, job: IntArray, at: float, after: FloatArray) -> None:
        """Correct ``after``, the checkpointed steps of lost jobs, where the speed has changed."""
        for i, number in enumerate(job.tolist()):
            if number in self._changed:
                after[i] = self._last_checkpoint(number, at)

    def _last_checkpoint(self, job: int, at: float) -> float:
        """Return the steps in the last checkpoint of a job whose speed has changed."""
        progress, start = self._progress, self._changed[job]
        every, begin = self._checkpoint_s, start.progress_from
        last_at = begin + max(at - begin, 0.0) // every * every
        if last_at < progress.progress_from[job]:
            return start.saved
        return float(
            progress.done[job] + (last_at - progress.progress_from[job]) * progress.rate[job]
        )
