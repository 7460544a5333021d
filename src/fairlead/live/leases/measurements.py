"""Measurements that jobs report, and the speeds of emulated accelerators."""

from collections.abc import Iterable, Mapping
from statistics import median

from fairlead.core.queries import Queries
from fairlead.live.job_spec import JobSpec
from fairlead.live.leases.open_leases import OpenLease
from fairlead.model import events as ev
from fairlead.model.speeds.key import SpeedKey
from fairlead.model.speeds.table import SpeedTable

_SAME = 0.05
"""relative difference up to which two speeds count as the same"""


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


class SpeedMeasurements:
    """Turns the speeds that running jobs report into measured speeds of their workloads.

    A speed counts once its job has reported it several times, after further steps each time. The
    median of the last reports is used, over all jobs of a workload with the same gang on the same
    accelerator. Speeds of jobs that share devices or hold several accelerators are left out, and
    so are impossible claims. Emulated accelerators run at the speeds of the table, which nothing
    replaces.
    """

    def __init__(
        self, queries: Queries, leases: Mapping[int, OpenLease], *, emulated: bool
    ) -> None:
        self._queries, self._leases, self._emulated = queries, leases, emulated
        self._counted: set[int] = set()
        """open leases whose speed has been used"""

    def is_new(self, lease: int) -> bool:
        """Return whether a lease has its first measured speed, which no event has used yet."""
        opened = self._leases.get(lease)
        if self._emulated or opened is None or lease in self._counted:
            return False
        return opened.measured_steps_per_s is not None

    def events(self, at: float) -> list[ev.Event]:
        """Return the measured speeds that differ from those believed so far."""
        if self._emulated:
            return []
        self._counted.intersection_update(self._leases)
        reports: dict[SpeedKey, list[float]] = {}
        for lease in self._leases.values():
            speed = lease.measured_steps_per_s
            if speed is None or lease.leaving:
                continue
            self._counted.add(lease.number)
            key = self._key(lease)
            if key is not None and lease.claims.is_possible_speed(speed):
                reports.setdefault(key, []).append(speed)
        changes = ((key, self._changed(key, median(speeds))) for key, speeds in reports.items())
        return [
            ev.SpeedMeasured(at, key.workload, key.gang, key.accelerator, speed)
            for key, speed in changes
            if speed is not None
        ]

    def _key(self, lease: OpenLease) -> SpeedKey | None:
        """Return the workload, gang and accelerator of a lease; None unless it runs alone."""
        shared = self._queries.shared_devices(lease.number)
        if shared is None or shared.partners or len(set(shared.accelerators)) != 1:
            return None
        workload = self._queries.measured_workload(self._queries.job_number(lease.job))
        return SpeedKey(workload, len(shared.accelerators), shared.accelerators[0])

    def _changed(self, key: SpeedKey, speed: float) -> float | None:
        """Return the speed to believe from now on; None if the belief stays.

        A speed that is the same as on another accelerator takes that value: jobs need not change
        places between accelerators that differ by noise alone.
        """
        believed = self._queries.believed_speed(key)
        if believed.source != "assumed" and _is_same(speed, believed.steps_per_s):
            return None
        known = self._queries.measured_elsewhere(key)
        return next((other for other in known if _is_same(speed, other)), speed)


def _is_same(speed: float, other: float) -> bool:
    return abs(speed - other) <= _SAME * other


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
