"""Leases in the virtual cluster whose speed changes before they end."""

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.sim.cluster.accounting import ProgressLedger
from fairlead.sim.cluster.progress import JobProgress


class SpeedChanges:
    """Credits progress before a job's speed changes, and keeps the start of its lease."""

    def __init__(
        self, progress: JobProgress, ledger: ProgressLedger, *, checkpoint_s: float
    ) -> None:
        self._progress = progress
        self._ledger = ledger
        self._checkpoint_s = checkpoint_s
        n = len(progress.total)
        self._changed = np.zeros(n, dtype=bool)
        """job → whether its speed has changed during its lease; if so, the columns below count"""
        self._held_from = np.zeros(n)
        """``held_from`` at the start of the lease"""
        self._progress_from = np.zeros(n)
        """``progress_from`` at the start of the lease"""
        self._saved = np.zeros(n)
        """steps of the last checkpoint before the last change"""
        self.leaving = np.zeros(n, dtype=bool)
        """job → whether it is preempted but still holds its devices, and makes no more steps"""

    def record_progress(self, job: IntArray, at: float) -> None:
        """Credit jobs with their progress so far and continue from here."""
        progress = self._progress
        first = job[~self._changed[job]]
        self._changed[first] = True
        self._held_from[first] = progress.held_from[first]
        self._progress_from[first] = progress.progress_from[first]
        self._saved[job] = self._last_checkpoint(job, at)
        self._ledger.credit(job, at, progress.steps_at(job, at))
        progress.held_from[job] = at
        progress.progress_from[job] = np.maximum(progress.progress_from[job], at)

    def start_leaving(self, job: IntArray, at: float) -> None:
        """Stop the progress of jobs that still hold their devices for a while."""
        self.record_progress(job, at)
        self._progress.rate[job] = 0.0
        self._progress.finish_at[job] = np.inf
        self.leaving[job] = True

    def forget(self, job: IntArray) -> None:
        """Remove jobs whose leases have ended."""
        self._changed[job] = False
        self.leaving[job] = False

    def held_from(self, job: IntArray) -> FloatArray:
        """Return the start times of the leases of running jobs."""
        return np.where(self._changed[job], self._held_from[job], self._progress.held_from[job])

    def restore_checkpointed_steps(self, job: IntArray, at: float, after: FloatArray) -> None:
        """Correct ``after``, the checkpointed steps of lost jobs, where the speed has changed."""
        changed = self._changed[job]
        after[changed] = self._last_checkpoint(job[changed], at)

    def _last_checkpoint(self, job: IntArray, at: float) -> FloatArray:
        """Return the steps in the last checkpoints of jobs whose speed has changed."""
        progress, begin = self._progress, self._progress_from[job]
        last_at = begin + np.maximum(at - begin, 0.0) // self._checkpoint_s * self._checkpoint_s
        since = last_at - progress.progress_from[job]
        made = progress.done[job] + since * progress.rate[job]
        return np.where(since < 0, self._saved[job], made)
