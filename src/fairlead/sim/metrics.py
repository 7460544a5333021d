"""Metrics of a simulation: the figures of ``simulate --json``."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster
from fairlead.model.job import DEADLINE_TOLERANCE, Job
from fairlead.model.snapshot import gangs_by_accelerator
from fairlead.model.submission.skipped_job import SkippedJob
from fairlead.model.tenants.tenant import Tenant
from fairlead.sim.entitlement import mean_entitled_shares
from fairlead.sim.record import Record


@dataclass(frozen=True, slots=True)
class JobResult:
    """Results of one job; times are None if the job never started or finished."""

    id: str
    tenant: str
    arrival_at: float
    started_at: float | None
    finished_at: float | None
    jct_s: float | None
    device_s: dict[str, float]
    preemptions: int
    migrations: int
    first_100_steps_s: float | None


@dataclass(frozen=True, slots=True)
class TenantResult:
    """Entitled and received share of a tenant.

    Entitled: its fraction by weight among tenants with unfinished jobs, averaged over time
    (``mean_entitled_shares``). Received: its fraction of the device time used.
    """

    tenant: str
    entitled_share: float
    received_share: float


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one simulation, over the jobs of its window."""

    policy: str
    avg_jct_s: float | None
    median_jct_s: float | None
    p90_jct_s: float | None
    p99_jct_s: float | None
    makespan_s: float | None
    utilization: float
    """device time used over device time available, from the first arrival to the end of the run"""
    rounds: int
    solves: int
    preemptions: int
    migrations: int
    cost_usd: float
    slo_violations: int
    """jobs that had a deadline and missed it"""
    finish_time_fairness: float | None
    """mean over jobs of completion time over that with 1/n of the cluster, n concurrent jobs"""
    busy_share: dict[str, float]
    """utilization of each accelerator"""
    unfinished: int
    cpu_s: float
    wall_s: float
    tenants: list[TenantResult]
    jobs: list[JobResult]
    trades: list[dict[str, object]]
    skipped: list[SkippedJob] = field(default_factory=list)
    """jobs of the trace that were left out, since they can never run"""

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        # Not asdict, which copies every value of every job.
        figures = _values(self)
        figures["tenants"] = [_values(tenant) for tenant in self.tenants]
        figures["jobs"] = [_values(job) for job in self.jobs]
        figures["skipped"] = [_values(job) for job in self.skipped]
        return figures


def _values(row: Result | JobResult | TenantResult | SkippedJob) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__slots__}


def summarise(
    record: Record,
    cluster: Cluster,
    solo: FloatArray,
    *,
    policy: str,
    tenants: Sequence[Tenant] = (),
    window: tuple[int, int] | None = None,
    cpu_s: float = 0.0,
    wall_s: float = 0.0,
) -> Result:
    """Return the figures of a run; ``solo`` is jobs × accelerators → true steps per second.

    ``tenants`` are those of the tenants file, if there is one.
    """
    jobs = record.jobs
    chosen = slice(*(window or (0, len(jobs))))
    arrival = np.array([job.arrival_at for job in jobs])
    end = record.finished_at
    jct = (end - arrival)[chosen]
    done = jct[~np.isnan(jct)]
    span = record.ended_at - float(arrival.min())
    used = record.device_s.sum(axis=0)
    held = span * cluster.counts
    busy = np.divide(used, held, out=np.zeros(len(held)), where=held > 0)
    fairness = finish_time_fairness(jobs, arrival, end, solo, cluster)[chosen]
    return Result(
        policy=policy,
        avg_jct_s=_figure(done, np.mean),
        median_jct_s=_figure(done, median),
        p90_jct_s=_figure(done, partial(percentile, percent=90)),
        p99_jct_s=_figure(done, partial(percentile, percent=99)),
        makespan_s=_figure(end[chosen][~np.isnan(end[chosen])] - arrival.min(), np.max),
        utilization=float(used.sum() / held.sum()) if span else 0.0,
        rounds=record.rounds,
        solves=record.solves,
        preemptions=int(record.preemptions[chosen].sum()),
        migrations=int(record.migrations[chosen].sum()),
        cost_usd=float((used * cluster.usd_per_hour).sum() / 3600),
        slo_violations=_missed(jobs[chosen], end[chosen]),
        finish_time_fairness=_figure(fairness[~np.isnan(fairness)], np.mean),
        busy_share=dict(zip(cluster.accelerators, busy.tolist(), strict=True)),
        unfinished=int(np.isnan(jct).sum()),
        cpu_s=cpu_s,
        wall_s=wall_s,
        tenants=_tenants(record, tenants),
        jobs=_job_results(record, cluster, arrival, chosen),
        trades=[],
    )


def _figure(values: FloatArray, of: Any) -> float | None:
    return float(of(values)) if len(values) else None


def median(values: FloatArray) -> float:
    """Return the median: that of np.median, which loads numpy.ma."""
    ascending, n = np.sort(values), len(values)
    middle: float = (ascending[(n - 1) // 2] + ascending[n // 2]) / 2
    return middle


def percentile(values: FloatArray, percent: float) -> float:
    """Return a percentile: that of np.percentile, which loads numpy.ma."""
    ascending, position = np.sort(values), (len(values) - 1) * (percent / 100)
    low = int(position)
    below, above = ascending[low], ascending[min(low + 1, len(values) - 1)]
    part, gap = position - low, above - below
    between: float = below + gap * part if part < 0.5 else above - gap * (1 - part)
    return between


def _missed(jobs: Sequence[Job], end: FloatArray) -> int:
    """Return the number of jobs that ended after their deadlines, rounding aside, or never."""
    arrival = np.array([job.arrival_at for job in jobs])
    allowed = np.array([np.inf if job.deadline_s is None else job.deadline_s for job in jobs])
    taken = np.where(np.isnan(end), np.inf, end - arrival)
    return int(np.count_nonzero(taken > allowed * (1 + DEADLINE_TOLERANCE)))


def finish_time_fairness(
    jobs: Sequence[Job], arrival: FloatArray, end: FloatArray, solo: FloatArray, cluster: Cluster
) -> FloatArray:
    """Return jobs → time taken over the time with 1/n of the cluster (Themis' ρ; Gavel §4.2).

    n is the mean number of unfinished jobs while this one was unfinished.
    """
    last = np.where(np.isnan(end), np.nanmax(end, initial=arrival.max()), end)
    instants = np.concatenate([arrival, last])
    order = np.argsort(instants, kind="stable")
    at = instants[order]
    change = np.concatenate([np.ones(len(arrival)), -np.ones(len(last))])[order]
    present = np.cumsum(change)
    area = np.concatenate([[0.0], np.cumsum(present[:-1] * np.diff(at))])

    def jobs_until(when: FloatArray) -> FloatArray:
        until: FloatArray = np.interp(when, at, area)
        return until

    taken = end - arrival
    with np.errstate(invalid="ignore", divide="ignore"):
        concurrent = (jobs_until(last) - jobs_until(arrival)) / (last - arrival)
        gang = gangs_by_accelerator(jobs, cluster.accelerators)
        share = cluster.counts / (np.maximum(concurrent, 1.0)[:, None] * gang)
        share /= np.maximum(share.sum(axis=1, keepdims=True), 1.0)
        steps = np.array([job.total_steps for job in jobs])
        rho: FloatArray = taken / (steps / (solo * share).sum(axis=1))
    return rho


def _tenants(record: Record, tenants: Sequence[Tenant]) -> list[TenantResult]:
    jobs = record.jobs
    names = list(dict.fromkeys(job.tenant for job in jobs))
    index = np.array([names.index(job.tenant) for job in jobs])
    ends = np.where(np.isnan(record.finished_at), record.ended_at, record.finished_at)
    entitled = mean_entitled_shares(jobs, names, tenants, ends, record.ended_at)
    used = np.bincount(index, weights=record.device_s.sum(axis=1), minlength=len(names))
    received = used / max(used.sum(), 1e-300)
    rows = zip(names, entitled.tolist(), received.tolist(), strict=True)
    return [TenantResult(*row) for row in rows]


def _job_results(
    record: Record, cluster: Cluster, arrival: FloatArray, chosen: slice
) -> list[JobResult]:
    def known(values: FloatArray) -> list[float | None]:
        return [None if np.isnan(value) else value for value in values[chosen].tolist()]

    rows = zip(
        record.jobs[chosen],
        known(record.started_at),
        known(record.finished_at),
        known(record.finished_at - arrival),
        record.device_s[chosen].tolist(),
        record.preemptions[chosen].tolist(),
        record.migrations[chosen].tolist(),
        known(record.first_steps_at - arrival),
        strict=True,
    )
    accelerators = cluster.accelerators
    return [
        JobResult(
            job.id,
            job.tenant,
            job.arrival_at,
            started,
            finished,
            jct,
            {name: seconds for name, seconds in zip(accelerators, held, strict=True) if seconds},
            preemptions,
            migrations,
            first,
        )
        for job, started, finished, jct, held, preemptions, migrations, first in rows
    ]
