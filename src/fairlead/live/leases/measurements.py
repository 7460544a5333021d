"""Measurements that jobs report, and the speeds of emulated accelerators."""

from collections.abc import Iterable, Mapping

from fairlead.core.queries import Queries
from fairlead.live.job_spec import JobSpec
from fairlead.live.leases.open_leases import OpenLease
from fairlead.model import events as ev
from fairlead.model.speeds.table import SpeedTable


def measured(leases: Iterable[OpenLease], at: float) -> list[ev.Event]:
    """Return the reported speeds of running jobs, with utilisation and memory if reported.

    Leaves out speeds that are not possible.

    Jobs report these as the metrics ``utilization`` (0 to 1) and ``memory_gib`` (of one device).
    """
    return [
        ev.Measured(
            at,
            lease.number,
            lease.steps_per_s,
            _within(lease.metrics.get("utilization"), 1.0),
            _within(lease.metrics.get("memory_gib"), 1e6),
        )
        for lease in leases
        if lease.steps_per_s > 0 and not lease.leaving
        if lease.claims.is_possible_speed(lease.steps_per_s)
    ]


def _within(value: float | None, maximum: float) -> float | None:
    return value if value is not None and 0.0 <= value <= maximum else None


def emulated_speed(
    speeds: SpeedTable, queries: Queries, specs: Mapping[str, JobSpec], lease: int
) -> float | None:
    """Return the speed of a lease's job beside the jobs on the same devices; None if not open.

    Pairs without a measured speed take turns, and so do more than two jobs.
    """
    shared = queries.shared_devices(lease)
    if shared is None:
        return None
    workload, accelerators = specs[shared.job_id].workload, shared.accelerators
    partners = [specs[job_id].workload for job_id in shared.partners]
    if len(partners) == 1:
        beside = speeds.speed(workload, accelerators, partner=partners[0])
        if beside > 0:
            return beside
    return speeds.speed(workload, accelerators) / (1 + len(partners))
