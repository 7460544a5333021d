"""Counters per job that the scheduler's tables do not have, computed from events alone."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fairlead.core.queries import HeldPlace, JobState, Queries
from fairlead.live.history.job_history import LeaseRecord
from fairlead.live.history.usage import HeldDevices, UsageLedger
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


WAIT_BUCKETS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 86400.0)
"""upper bounds of the buckets in which queue waits are counted"""


@dataclass(slots=True)
class Totals:
    """Counts of all jobs together, those that are no longer kept included."""

    ended: dict[str, int] = field(default_factory=dict)
    """final state → jobs"""
    waits: list[int] = field(default_factory=lambda: [0] * (len(WAIT_BUCKETS_S) + 1))
    """jobs by the time from submission to the first start, by bucket"""
    waits_s: float = 0.0
    """sum of these times"""

    def add_wait(self, wait_s: float) -> None:
        """Count a job that starts for the first time."""
        self.waits[bisect_left(WAIT_BUCKETS_S, wait_s)] += 1
        self.waits_s += wait_s


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
        """lease → its devices"""
        self.usage = UsageLedger()
        self.totals = Totals()
        self.ended_leases: deque[tuple[str, LeaseRecord]] = deque()
        """jobs and records of ended leases, for the histories of jobs"""

    def of(self, job_id: str) -> JobCounts:
        """Return a job's counts, zeros if it has none yet.

        Adds no entry: another thread may be saving the counts at this moment.
        """
        return self.tally.get(job_id) or JobCounts()

    def record(self, event: ev.Event) -> None:
        """Count an event that the scheduler has handled."""
        if isinstance(event, ev.JobCancelled | ev.JobFailed):
            state = "cancelled" if isinstance(event, ev.JobCancelled) else "failed"
            self._job_ended(self._counts_of(event.job_id), event.at, state)
        if isinstance(event, ev.Progress):
            self._steps.update(zip(event.lease.tolist(), event.steps.tolist(), strict=True))
        if not isinstance(event, ev.LeasesEnded):
            return
        for lease, kept in zip(event.lease.tolist(), event.steps.tolist(), strict=True):
            self._lease_ended(lease, kept, event)

    def _lease_ended(self, lease: int, kept: float, event: ev.LeasesEnded) -> None:
        began_at, before = self._began.pop(lease, (event.at, 0.0))
        reported, places = self._steps.pop(lease, 0.0), self._places.pop(lease, ())
        job_id = self._job_of_lease.pop(lease, None)
        if job_id is None:
            return
        counts, number = self._counts_of(job_id), self._queries.job_number(job_id)
        state = self._queries.job_state(number)
        counts.failures += event.outcome == "failed"
        # Cancelled, suspended and failed jobs were not preempted.
        preempted = event.outcome == "left" and state == JobState.ACTIVE
        lost = event.outcome == "lost" and state in (JobState.ACTIVE, JobState.HELD)
        counts.preemptions += preempted or lost
        lost_s = 0.0
        if state in (JobState.ACTIVE, JobState.HELD):
            lost_s = _lost_s(began_at, before, reported, kept, event.at)
            counts.lost_s += lost_s
        if state == JobState.FINISHED:
            self._job_ended(counts, event.at, "finished")
        tenant = self._queries.job(number).tenant
        for held in _held(tenant, places, began_at, event.at):
            counts.device_s += held.devices * (held.ended_at - held.began_at)
            self.usage.add(held)
        record = LeaseRecord(
            lease=lease,
            nodes=_sizes(places, "node"),
            accelerators=_sizes(places, "accelerator"),
            started_at=began_at,
            ended_at=event.at,
            ending=event.outcome,
            steps=max(kept - before, 0.0),
            lost_s=lost_s,
        )
        self.ended_leases.append((job_id, record))

    def _job_ended(self, counts: JobCounts, at: float, state: str) -> None:
        if counts.ended_at is None:
            self.totals.ended[state] = self.totals.ended.get(state, 0) + 1
        counts.ended_at = at

    def usage_until(self, at: float) -> UsageLedger:
        """Return the usage of all leases, open ones until ``at``."""
        return self.usage.with_open(self._open_usage(at))

    def device_s_until(self, job_id: str, lease: int | None, at: float) -> float:
        """Return the device-seconds of a job, of its open lease until ``at``."""
        device_s = self.of(job_id).device_s
        if lease is not None and lease in self._began:
            devices = sum(place.devices for place in self._places.get(lease, ()))
            device_s += devices * max(at - self._began[lease][0], 0.0)
        return device_s

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
            accelerator = self._queries.accelerator_of(job)
            if accelerator is not None and accelerator not in counts.accelerators:
                counts.accelerators = (*counts.accelerators, accelerator)
            self._job_of_lease[lease] = job_id
            self._began[lease] = (at, self._queries.saved_steps(job))
            self._places[lease] = self._queries.places(placement.devices)

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
            "usage": self.usage.saved(),
            "totals": asdict(self.totals),
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
        self.usage.restore(saved.get("usage", {}))
        self.totals = Totals(**saved["totals"]) if "totals" in saved else self._known_totals()
        places = saved.get("places", {})
        for lease in self._job_of_lease:
            held = places.get(str(lease))
            self._places[lease] = (
                self._queries.places_of_lease(lease)  # an earlier version saved none
                if held is None
                else tuple(HeldPlace(*place) for place in held)
            )

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


def _lost_s(began_at: float, before: float, reported: float, kept: float, at: float) -> float:
    """Return the seconds of a lease that ends now with ``kept`` steps in a checkpoint.

    Time divides like steps: all of it is lost if the job reported no step and saved none.
    """
    if reported <= before:
        return at - began_at if kept <= before else 0.0
    return (at - began_at) * max(reported - kept, 0.0) / (reported - before)


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
