"""Measurements that jobs report, and the speeds of emulated accelerators."""

from collections.abc import Iterable, Mapping
from statistics import median

from fairlead.core.queries import Queries
from fairlead.live.job_spec import JobSpec
from fairlead.live.leases.open_leases import OpenLease
from fairlead.live.leases.renewal import RenewalAnswer
from fairlead.live.nodes.lease_use import LeaseUse
from fairlead.live.speeds.memory import too_large
from fairlead.model import events as ev
from fairlead.model.speeds.elastic import speed_of_size
from fairlead.model.speeds.key import SpeedKey
from fairlead.model.speeds.table import SpeedTable

_SAME = 0.05
"""relative difference up to which two speeds count as the same"""


def measured(leases: Iterable[OpenLease], use: LeaseUse, at: float) -> list[ev.Event]:
    """Return the reported speeds of running jobs, with utilisation and memory if known.

    Leaves out speeds that are not possible, and those of packed jobs that were measured before
    their partner came or left.

    Jobs may report the metrics ``utilization`` (0 to 1) and ``memory_gib`` (of one device);
    ``use`` has what the driver of their devices reads.
    """
    return [
        ev.Measured(
            at,
            lease.number,
            lease.steps_per_s,
            _utilization(lease, use),
            _memory_gib(lease, use),
        )
        for lease in leases
        if lease.steps_per_s > 0 and not lease.leaving and lease.speeds.current
        if lease.claims.is_possible_speed(lease.steps_per_s)
    ]


class SpeedMeasurements:
    """Turns the speeds that running jobs report into measured speeds of their workloads.

    A speed counts once its job has reported it several times, after further steps each time. The
    median of the last reports is used, over all jobs of a workload with the same gang on the same
    accelerator, consolidated or spread. The speed of a packed job counts for the pair of
    workloads, never for the job alone. Left out are speeds on devices of several accelerators,
    beside several partners, and impossible claims. Where emulated accelerators run at the
    believed speeds, nothing is measured (not ``enabled``).
    """

    def __init__(
        self, queries: Queries, leases: Mapping[int, OpenLease], *, enabled: bool
    ) -> None:
        self._queries, self._leases, self._enabled = queries, leases, enabled
        self._counted: dict[int, int] = {}
        """open leases whose speed has been used, and the last series that was"""

    def is_new(self, lease: int) -> bool:
        """Return whether a lease has the first speed of a series, which no event has used yet."""
        opened = self._leases.get(lease)
        if not self._enabled or opened is None or opened.speeds.measured is None:
            return False
        return self._counted.get(lease) != opened.speeds.series

    def events(self, at: float) -> list[ev.Event]:
        """Return the measured speeds that differ from those believed so far.

        They are 0 where a job does not fit, by the memory that it reports.
        """
        if not self._enabled:
            return []
        self._counted = {n: seen for n, seen in self._counted.items() if n in self._leases}
        reports: dict[SpeedKey, list[float]] = {}
        for lease in self._leases.values():
            speed = lease.speeds.measured
            if speed is None or lease.leaving or self._has_changed_company(lease):
                continue
            self._counted[lease.number] = lease.speeds.series
            key = self._queries.speed_key(lease.number)
            if key is not None and lease.claims.is_possible_speed(speed):
                reports.setdefault(key, []).append(speed)
        changes = ((key, self._changed(key, median(speeds))) for key, speeds in reports.items())
        changed: list[ev.Event] = [
            ev.SpeedMeasured.of(at, key, speed) for key, speed in changes if speed is not None
        ]
        return changed + too_large(self._queries, self._leases.values(), at)

    def _has_changed_company(self, lease: OpenLease) -> bool:
        """Return whether a partner has come or left since a lease last reported its speed."""
        company, shared = lease.speeds.company, self._queries.shared_devices(lease.number)
        return company is not None and shared is not None and company.partners != shared.leases

    def _changed(self, key: SpeedKey, speed: float) -> float | None:
        """Return the speed to believe from now on; None if the belief stays.

        A speed that is the same as in the other placement or on another accelerator takes that
        value: jobs need not move between places that differ by noise alone.
        """
        if key.partner is not None:
            beside = self._queries.believed_pair_speed(key)
            return None if beside is not None and _is_same(speed, beside) else speed
        believed = self._queries.believed_speed(key)
        if believed.source != "assumed" and _is_same(speed, believed.steps_per_s):
            return None
        known = self._queries.measured_elsewhere(key)
        return next((other for other in known if _is_same(speed, other)), speed)


def _is_same(speed: float, other: float) -> bool:
    return abs(speed - other) <= _SAME * other


def _utilization(lease: OpenLease, use: LeaseUse) -> float | None:
    """Return the utilisation that a job reports, else the one that was read."""
    reported = _within(lease.metrics.get("utilization"), 1.0)
    return use.utilization(lease.number) if reported is None else reported


def _memory_gib(lease: OpenLease, use: LeaseUse) -> float | None:
    """Return a job's memory on one device: libraries report tensors, without their context."""
    reported = _within(lease.metrics.get("memory_gib"), 1e6)
    known = [gib for gib in (reported, use.memory_gib(lease.number)) if gib is not None]
    return max(known, default=None)


def _within(value: float | None, maximum: float) -> float | None:
    return value if value is not None and 0.0 <= value <= maximum else None


def with_emulated_speed(
    answer: RenewalAnswer | None,
    speeds: SpeedTable | None,
    queries: Queries,
    specs: Mapping[str, JobSpec],
    lease: int,
) -> RenewalAnswer | None:
    """Return the answer to a renewal, with the emulated speed where jobs may share devices."""
    if answer is not None and speeds is not None and queries.has_packed:
        answer["emulated_steps_per_s"] = emulated_speed(speeds, queries, specs, lease)
    return answer


def emulated_speed(
    speeds: SpeedTable, queries: Queries, specs: Mapping[str, JobSpec], lease: int
) -> float | None:
    """Return the speed of a lease's job beside the jobs on the same devices; None if not open.

    Pairs without a measured speed take turns, and so do more than two jobs.
    """
    shared = queries.shared_devices(lease)
    if shared is None:
        return None
    spec, accelerators, placement = specs[shared.job_id], shared.accelerators, shared.placement
    partners = [specs[job_id].workload for job_id in shared.partners]
    if len(partners) == 1:
        beside = speeds.speed(
            spec.workload, accelerators, placement=placement, partner=partners[0]
        )
        if beside > 0:
            return beside
    alone = speed_of_size(speeds, spec.workload, accelerators, spec.gang, placement)
    return alone / (1 + len(partners))
