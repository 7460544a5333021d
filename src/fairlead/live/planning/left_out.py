"""Jobs that plans leave out because they fail with them, and the times at which to retry them."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from fairlead.live.planning.recovery import without_jobs
from fairlead.model.snapshot import Snapshot

_MAX_WAIT = 64
"""most plans from which a job is left out before it is tried again"""
_FREE_CHANGES = 3
"""failures up to which a job is tried again as soon as its tenant changes its numbers"""

Numbers = bytes


@dataclass(slots=True)
class _Record:
    """A job that made plans fail."""

    numbers: Numbers
    """the numbers with which it did"""
    failures: int = 0
    wait: int = 0
    """plans from which it is still left out"""


class LeftOutJobs:
    """Leaves jobs out of the next 2, 4, 8, … plans after each failure with them.

    The wait counts plans, not seconds. Each plan is logged with the jobs that it leaves out.
    """

    def __init__(self) -> None:
        self._records: dict[int, _Record] = {}

    def next_plan(self, snapshot: Snapshot) -> frozenset[int]:
        """Return the jobs of a snapshot to leave out of the next plan."""
        if not self._records:
            return frozenset()
        numbers, left_out = _numbers_of_jobs(snapshot), set()
        for job, record in self._records.items():
            if job not in numbers:
                continue
            if numbers[job] != record.numbers and record.failures <= _FREE_CHANGES:
                record.wait = 0
            if record.wait:
                record.wait -= 1
                left_out.add(job)
        return frozenset(left_out)

    def add(self, jobs: Collection[int], snapshot: Snapshot) -> None:
        """Leave jobs out of later plans, for longer after each failure."""
        numbers = _numbers_of_jobs(snapshot)
        for job in jobs:
            record = self._records.setdefault(job, _Record(numbers[job]))
            record.numbers = numbers[job]
            record.failures += 1
            record.wait = min(1 << record.failures, _MAX_WAIT)

    def suspects(self, snapshot: Snapshot) -> frozenset[int]:
        """Return the jobs of a snapshot that made an earlier plan fail."""
        return frozenset(self._records) & frozenset(snapshot.job.tolist())


def without(snapshot: Snapshot, jobs: Collection[int]) -> Snapshot:
    """Return the snapshot without these jobs; the devices that they hold are not usable."""
    if not jobs:
        return snapshot
    stays = ~np.isin(snapshot.job, list(jobs))
    return without_jobs(snapshot, stays.nonzero()[0])


def _numbers_of_jobs(snapshot: Snapshot) -> dict[int, Numbers]:
    """Return job number → the numbers that its tenant has chosen."""
    columns = (snapshot.profile, snapshot.total_steps, snapshot.deadline_at, snapshot.priority)
    rows = np.column_stack(columns)  # as bytes, because a number that is unknown may be NaN
    return {job: row.tobytes() for job, row in zip(snapshot.job.tolist(), rows, strict=True)}
