"""Counters per job that the scheduler's tables do not have, computed from events alone."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from fairlead.core.queries import HeldPlace, JobState, Queries
from fairlead.live.history.job_history import LeaseRecord
from fairlead.live.history.suspended_work import SuspendedWork
from fairlead.live.history.tenant_totals import TenantTotals
from fairlead.live.history.totals import Totals
from fairlead.live.history.unsaved_lease import UnsavedLease
from fairlead.live.history.usage import HeldDevices, UsageLedger
from fairlead.live.timeline.intervals import HeldInterval
from fairlead.live.timeline.outages import NodeOutages
from fairlead.model import commands as cmd
from fairlead.model import events as ev


@dataclass(slots=True)
class JobCounts:
    """Counts of one job."""

    leases: int = 0
    preemptions: int = 0
    failures: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    accelerators: tuple[str, ...] = ()
    """accelerators it has run on, in order of first use"""
    lost_s: float = 0.0
    """seconds of its leases whose steps are in no checkpoint and were repeated"""
    device_s: float = 0.0
    """device-seconds of its ended leases"""
    held_s: float = 0.0
    """seconds for which it has held devices, under its ended leases"""


class JobTransition(NamedTuple):
    """The end or a preemption of a job."""

    job_id: str
    state: Literal["finished", "failed", "cancelled", "preempted"]
    at: float
    lease: int | None = None
    """the preempted lease"""


_RECENT_S, _MAX_RECENT = 60.0, 5000
"""seconds for which records of ended leases are saved with the counts, and their maximum: by then
the histories of jobs are stored"""
_RECENT_INTERVALS_S = 15.0
"""seconds for which intervals of ended leases are saved: by then the timeline is stored"""


class JobCounters:
    """Counts by job id; a replay of the event log gives the same counts."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self.tally: dict[str, JobCounts] = {}
        self._job_of_lease: dict[int, str] = {}
        self._began: dict[int, tuple[float, float]] = {}
        """lease → time of its launch, and the job's checkpointed steps then"""
        self._steps: dict[int, float] = {}
        """lease → steps last reported"""
        self._places: dict[int, tuple[HeldPlace, ...]] = {}
        """lease → its devices by node and accelerator"""
        self._devices: dict[int, tuple[int, ...]] = {}
        """lease → numbers of its devices"""
        self._copies: set[int] = set()
        """leases of copies of jobs, which report their own steps"""
        self.unsaved: dict[str, UnsavedLease] = {}
        """job → its last lease, while the process that stayed is saving its steps"""
        self.suspended = SuspendedWork()
        self.usage = UsageLedger()
        self.totals = Totals()
        self.tenants = TenantTotals()
        self.ended_leases: deque[tuple[str, LeaseRecord]] = deque()
        """jobs and records of ended leases, for the histories of jobs"""
        self._recent: deque[tuple[str, LeaseRecord]] = deque(maxlen=_MAX_RECENT)
        """the last of them: a saved state ends the replay of their events"""
        self.ended_intervals: deque[HeldInterval] = deque()
        """devices and times of ended leases, for the timeline"""
        self._recent_intervals: deque[HeldInterval] = deque(maxlen=_MAX_RECENT)
        """the last of them"""
        self.outages = NodeOutages()
        self.transitions: deque[JobTransition] = deque()
        """ends and preemptions of jobs, for those who wait for them"""

    def of(self, job_id: str) -> JobCounts:
        """Return a job's counts, zeros if it has none yet.

        Adds no entry: another thread may be saving the counts at this moment.
        """
        return self.tally.get(job_id) or JobCounts()

    def record(self, event: ev.Event) -> None:
        """Count an event that the scheduler has handled."""
        self.outages.record(event)
        if isinstance(event, ev.JobCancelled | ev.JobFailed):
            cancelled = isinstance(event, ev.JobCancelled)
            state: Literal["cancelled", "failed"] = "cancelled" if cancelled else "failed"
            self._job_ended(JobTransition(event.job_id, state, event.at))
        if isinstance(event, ev.JobSubmitted):
            self.tenants.of(event.job.tenant).submitted += 1
        if isinstance(event, ev.Progress):
            self._steps.update(zip(event.lease.tolist(), event.steps.tolist(), strict=True))
        if isinstance(event, ev.StepsSaved):
            if event.job_id not in self.unsaved:  # it was suspended, and saves nothing
                self._count_lost(event.job_id, self.suspended.take(event.job_id))
            self._steps_saved(event.job_id, event.steps)
        if not isinstance(event, ev.LeasesEnded):
            return
        unsaved = event.steps if event.unsaved is None else event.unsaved
        ends = zip(event.lease.tolist(), event.steps.tolist(), unsaved.tolist(), strict=True)
        for i, (lease, kept, in_memory) in enumerate(ends):
            until = event.at if event.held_until is None else float(event.held_until[i])
            self._lease_ended(lease, until, kept, in_memory, event)

    def _lease_ended(
        self, lease: int, until: float, kept: float, unsaved: float, event: ev.LeasesEnded
    ) -> None:
        began_at, before = self._began.pop(lease, (event.at, 0.0))
        until = max(until, began_at)
        reported, places = self._steps.pop(lease, 0.0), self._places.pop(lease, ())
        devices = self._devices.pop(lease, ())
        job_id = self._job_of_lease.pop(lease, None)
        if job_id is None:
            return
        counts, number = self._counts_of(job_id), self._queries.job_number(job_id)
        state, tenant = self._queries.job_state(number), self._queries.job(number).tenant
        of_tenant = self.tenants.of(tenant)
        counts.failures += event.outcome == "failed"
        of_tenant.lease_failures += event.outcome == "failed"
        # Cancelled, suspended and failed jobs were not preempted.
        is_copy = lease in self._copies  # it left because the round ended, or its part was made
        self._copies.discard(lease)
        preempted = event.outcome == "left" and state == JobState.ACTIVE and not is_copy
        lost = event.outcome == "lost" and state in (JobState.ACTIVE, JobState.HELD)
        counts.preemptions += preempted or lost
        of_tenant.preemptions += preempted or lost
        if state == JobState.FINISHED:
            self._job_ended(JobTransition(job_id, "finished", until))
        if preempted or lost:
            self.transitions.append(JobTransition(job_id, "preempted", event.at, lease))
        counts.held_s += until - began_at
        for held in _held(tenant, places, began_at, until):
            counts.device_s += held.devices * (held.ended_at - held.began_at)
            self.usage.add(held)
        record = LeaseRecord(
            lease=lease,
            nodes=_sizes(places, "node"),
            accelerators=_sizes(places, "accelerator"),
            started_at=began_at,
            ended_at=until,
            ending=event.outcome,
            steps=0.0,
        )
        self._steps_saved(job_id, kept)  # of an earlier lease, if that is still open
        self.unsaved[job_id] = UnsavedLease(record, before, reported, unsaved)
        if unsaved <= kept:
            self._steps_saved(job_id, kept, suspended=event.suspended)
        if event.suspended:
            self.suspended.add(job_id, lease, until - began_at)
        else:
            in_process_s = self.suspended.take(job_id)
            self._count_lost(job_id, in_process_s if event.outcome in ("failed", "lost") else 0.0)
        ending = "preempted" if preempted else event.outcome
        self._add_interval(HeldInterval(lease, job_id, tenant, devices, began_at, until, ending))

    def _steps_saved(self, job_id: str, kept: float, *, suspended: bool = False) -> None:
        """Count the work of a job's last lease, after which a checkpoint has ``kept`` steps.

        A ``suspended`` process has all of it in memory.
        """
        ended = self.unsaved.pop(job_id, None)
        if ended is None:
            return
        lost_s = self._count_lost(job_id, 0.0 if suspended else ended.lost_s(kept))
        self._add_ended(job_id, ended.counted(kept, lost_s))
        lease = self._queries.job_status(self._queries.job_number(job_id)).lease
        if lease in self._began and lease not in self._copies:  # it continues from these steps
            at, before = self._began[lease]
            self._began[lease] = (at, max(before, kept))

    def _count_lost(self, job_id: str, lost_s: float) -> float:
        """Count lost work of a job that has to repeat it; return the seconds that count."""
        number = self._queries.job_number(job_id)
        if self._queries.job_state(number) not in (JobState.ACTIVE, JobState.HELD):
            return 0.0
        if lost_s:
            self._counts_of(job_id).lost_s += lost_s
            self.tenants.of(self._queries.job(number).tenant).lost_s += lost_s
        return lost_s

    def _add_ended(self, job_id: str, record: LeaseRecord) -> None:
        self.ended_leases.append((job_id, record))
        self._recent.append((job_id, record))
        while self._recent[0][1].ended_at < record.ended_at - _RECENT_S:
            self._recent.popleft()

    def _add_interval(self, interval: HeldInterval) -> None:
        self.ended_intervals.append(interval)
        self._recent_intervals.append(interval)
        while self._recent_intervals[0].ended_at < interval.ended_at - _RECENT_INTERVALS_S:
            self._recent_intervals.popleft()

    def _job_ended(self, end: JobTransition) -> None:
        counts = self._counts_of(end.job_id)
        if counts.ended_at is None:
            self.totals.ended[end.state] = self.totals.ended.get(end.state, 0) + 1
            tenant = self._queries.job(self._queries.job_number(end.job_id)).tenant
            self.tenants.of(tenant).count_end(end.state)
            self.transitions.append(end)
        counts.ended_at = end.at

    def forget(self, job_id: str) -> None:
        """Drop the counts of a job that is no longer kept; its share of the totals stays."""
        self.tally.pop(job_id, None)
        self.unsaved.pop(job_id, None)
        self.suspended.take(job_id)
        kept = [entry for entry in self._recent if entry[0] != job_id]
        if len(kept) < len(self._recent):
            self._recent = deque(kept, maxlen=_MAX_RECENT)

    def usage_until(self, at: float) -> UsageLedger:
        """Return the usage of all leases, open ones until ``at``."""
        return self.usage.with_open(self._open_usage(at))

    def device_s_until(self, job_id: str, lease: int | None, at: float) -> float:
        """Return the device-seconds of a job, of its open lease or copies until ``at``."""
        device_s = self.of(job_id).device_s
        for one in self._open_leases(job_id, lease):
            devices = sum(place.devices for place in self._places.get(one, ()))
            device_s += devices * max(at - self._began[one][0], 0.0)
        return device_s

    def _open_leases(self, job_id: str, lease: int | None) -> list[int]:
        """Return a job's open lease, or those of all copies if it is the lease of one."""
        if lease in self._copies:
            return [one for one in self._copies if self._job_of_lease.get(one) == job_id]
        return [lease] if lease is not None and lease in self._began else []

    def held_s(self, job_id: str) -> float:
        """Return the seconds for which a job has held devices, under its ended leases."""
        return self.of(job_id).held_s

    def held_s_until(self, job_id: str, lease: int | None, at: float) -> float:
        """Return the seconds for which a job has held devices until ``at``."""
        held_s = self.held_s(job_id)
        if lease is not None and lease in self._began:
            held_s += max(at - self._began[lease][0], 0.0)
        return held_s

    def open_intervals(self, at: float) -> Iterator[HeldInterval]:
        """Yield the devices that open leases have held until ``at``."""
        for lease, job_id in self._job_of_lease.items():
            number = self._queries.find_job(job_id)
            if number is not None and lease in self._began:
                tenant, began_at = self._queries.job(number).tenant, self._began[lease][0]
                devices = self._devices.get(lease, ())
                yield HeldInterval(lease, job_id, tenant, devices, began_at, max(began_at, at))

    def _open_usage(self, at: float) -> Iterator[HeldDevices]:
        for lease, job_id in self._job_of_lease.items():
            number = self._queries.find_job(job_id)
            if number is not None and lease in self._began:
                tenant, began_at = self._queries.job(number).tenant, self._began[lease][0]
                yield from _held(tenant, self._places.get(lease, ()), began_at, at)

    def record_launch(self, command: cmd.Launch, at: float) -> None:
        """Count the leases that a command starts."""
        for lease, placement in zip(command.lease.tolist(), command.on, strict=True):
            job = placement.job
            job_id = self._queries.job_id(job)
            counts = self._counts_of(job_id)
            counts.leases += 1
            if counts.started_at is None:
                counts.started_at = at
                self.totals.add_wait(max(at - self._queries.job(job).arrival_at, 0.0))
            places = self._queries.places(placement.devices)
            of_job = self._queries.accelerator_of(job)  # one of its copies' accelerators
            accelerator = places[0].accelerator if placement.copy else of_job
            if accelerator is not None and accelerator not in counts.accelerators:
                counts.accelerators = (*counts.accelerators, accelerator)
            self._job_of_lease[lease] = job_id
            self._began[lease] = (at, 0.0 if placement.copy else self._queries.saved_steps(job))
            if placement.copy:
                self._copies.add(lease)
            self._places[lease] = places
            self._devices[lease] = tuple(placement.devices)

    def _counts_of(self, job_id: str) -> JobCounts:
        return self.tally.setdefault(job_id, JobCounts())

    def saved(self) -> dict[str, object]:
        """Return all counts, for ``restore``."""
        return {
            "tally": {job_id: asdict(counts) for job_id, counts in self.tally.items()},
            "leases": {str(lease): job_id for lease, job_id in self._job_of_lease.items()},
            "began": {str(lease): began for lease, began in self._began.items()},
            "steps": {str(lease): steps for lease, steps in self._steps.items()},
            "places": {str(lease): [*map(list, held)] for lease, held in self._places.items()},
            "copies": sorted(self._copies),
            "unsaved": {job_id: ended.saved() for job_id, ended in self.unsaved.items()},
            "suspended": self.suspended.saved(),
            "ended": {
                str(one.lease): {"job": job_id, **asdict(one)} for job_id, one in self._recent
            },
            "intervals": {str(one.lease): [*one] for one in self._recent_intervals},
            "usage": self.usage.saved(),
            "totals": asdict(self.totals),
            "tenants": self.tenants.saved(),
            "outages": self.outages.saved(),
        }

    def restore(self, saved: Mapping[str, dict[str, Any]]) -> None:
        """Take the counts that ``saved`` returned."""
        for job_id, counts in saved["tally"].items():
            values = {**counts, "accelerators": tuple(counts["accelerators"])}
            self.tally[job_id] = JobCounts(**values)
        self._job_of_lease = {int(lease): str(job) for lease, job in saved["leases"].items()}
        began, steps = saved.get("began", {}), saved.get("steps", {})
        self._began = {int(lease): (at, before) for lease, (at, before) in began.items()}
        self._steps = {int(lease): float(made) for lease, made in steps.items()}
        self._copies = {int(lease) for lease in saved.get("copies", ())}
        unsaved = saved.get("unsaved", {})
        self.unsaved = {job_id: UnsavedLease.of(ended) for job_id, ended in unsaved.items()}
        self.suspended.restore(saved.get("suspended", {}))
        for ended in saved.get("ended", {}).values():
            record = {name: field for name, field in ended.items() if name != "job"}
            self._add_ended(str(ended["job"]), LeaseRecord.of(record))
        for lease, job_id, tenant, devices, *rest in saved.get("intervals", {}).values():
            self._add_interval(HeldInterval(lease, job_id, tenant, tuple(devices), *rest))
        self.usage.restore(saved.get("usage", {}))
        self.outages.restore(saved.get("outages", {}))
        self.totals = Totals(**saved["totals"]) if "totals" in saved else self._known_totals()
        if "tenants" in saved:
            self.tenants.restore(saved["tenants"])
        else:
            self._count_known_jobs()
        places = saved.get("places", {})
        for lease in self._job_of_lease:
            self._devices[lease] = devices = self._queries.devices_of_lease(lease)
            held = places.get(str(lease))
            self._places[lease] = (
                self._queries.places(devices)  # an earlier version saved none
                if held is None
                else tuple(HeldPlace(*place) for place in held)
            )

    def _count_known_jobs(self) -> None:
        """Count the jobs in the tables by tenant, for a state of an earlier version."""
        ended = {
            JobState.FINISHED: "finished",
            JobState.FAILED: "failed",
            JobState.CANCELLED: "cancelled",
        }
        for number in self._queries.select_jobs(tuple(JobState)).tolist():
            job, counts = self._queries.job(number), self.of(self._queries.job_id(number))
            of_tenant = self.tenants.of(job.tenant)
            of_tenant.submitted += 1
            of_tenant.preemptions += counts.preemptions
            of_tenant.lease_failures += counts.failures
            of_tenant.lost_s += counts.lost_s
            if (state := ended.get(self._queries.job_state(number))) is not None:
                of_tenant.count_end(state)

    def _known_totals(self) -> Totals:
        """Return the totals of the jobs in the tables, for a state of an earlier version."""
        ended = {
            name: len(self._queries.select_jobs((state,)))
            for name, state in (
                ("finished", JobState.FINISHED),
                ("failed", JobState.FAILED),
                ("cancelled", JobState.CANCELLED),
            )
        }
        return Totals({name: count for name, count in ended.items() if count})


def _held(
    tenant: str, places: tuple[HeldPlace, ...], began_at: float, ended_at: float
) -> list[HeldDevices]:
    """Return the devices of a lease by accelerator."""
    sizes = _sizes(places, "accelerator").items()
    return [HeldDevices(tenant, name, devices, began_at, ended_at) for name, devices in sizes]


def _sizes(places: tuple[HeldPlace, ...], name: str) -> dict[str, int]:
    """Return devices by node or by accelerator."""
    sizes: dict[str, int] = {}
    for place in places:
        key = getattr(place, name)
        sizes[key] = sizes.get(key, 0) + place.devices
    return sizes
