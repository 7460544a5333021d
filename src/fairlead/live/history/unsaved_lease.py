"""An ended lease, while it is open how much of its work a checkpoint holds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from fairlead.live.history.job_history import LeaseRecord


class UnsavedLease(NamedTuple):
    """An ended lease whose process may have stayed to save its steps."""

    record: LeaseRecord
    before: float
    """steps in the job's checkpoint when the lease began"""
    reported: float
    """steps last reported"""
    unsaved: float
    """steps that the process is saving"""

    def lost_s(self, kept: float) -> float:
        """Return the seconds of the lease's work that a checkpoint with ``kept`` steps lacks.

        Time divides like steps: all of it is lost if the job reported no step and saved none.
        """
        held_s = self.record.ended_at - self.record.started_at
        if self.reported <= self.before:
            return held_s if kept <= self.before else 0.0
        return held_s * max(self.reported - kept, 0.0) / (self.reported - self.before)

    def counted(self, kept: float, lost_s: float) -> LeaseRecord:
        """Return the record of a lease with ``kept`` steps in the checkpoint after it."""
        return replace(self.record, steps=max(kept - self.before, 0.0), lost_s=lost_s)

    def saved(self) -> list[Any]:
        """Return this lease as JSON can hold it, for ``of``."""
        return [asdict(self.record), self.before, self.reported, self.unsaved]

    @classmethod
    def of(cls, saved: Sequence[Any]) -> "UnsavedLease":
        """Return the lease that ``saved`` returned."""
        record: Mapping[str, Any]
        record, before, reported, unsaved = saved
        return cls(LeaseRecord.of(record), float(before), float(reported), float(unsaved))
