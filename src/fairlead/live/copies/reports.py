"""Steps and speed of a job, added up over its copies."""

from collections.abc import Mapping
from typing import NamedTuple

from fairlead.core.queries import JobStatus
from fairlead.live.leases.open_leases import OpenLease


class ReportedProgress(NamedTuple):
    """Progress of a job, as last reported."""

    steps: float
    steps_per_s: float | None
    """None if the job holds no devices"""


def reported_progress(status: JobStatus, leases: Mapping[int, OpenLease]) -> ReportedProgress:
    """Return the steps that a job has made so far, and its speed."""
    lease = None if status.lease is None else leases.get(status.lease)
    if lease is None:
        return ReportedProgress(status.steps, None)
    if not lease.copy:
        return ReportedProgress(max(status.steps, lease.steps), lease.steps_per_s)
    copies = [one for one in leases.values() if one.job == status.id]
    steps = status.saved_steps + sum(one.steps for one in copies)
    return ReportedProgress(max(status.steps, steps), sum(one.steps_per_s for one in copies))
