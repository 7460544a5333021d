"""Checks that the jobs of a trace can run on a cluster at given speeds."""

from collections.abc import Iterator, Sequence

import numpy as np

from fairlead.files.parsing.fields import quote, unknown_name_error
from fairlead.files.traces.jobs import Trace
from fairlead.model.arrays import FloatArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.cluster import Cluster
from fairlead.model.errors import ImpossibleJobError, InputError
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.submission.admission import Admission, requirements
from fairlead.model.submission.skipped_job import SkippedJob
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.tree import TenantTree

_MAX_DURATION_S = 1e10
_ANY_GANGS = Capabilities(per_accelerator_gangs=True)


def check_trace(
    jobs: Sequence[Job],
    speeds: SpeedTable,
    cluster: Cluster,
    capabilities: Capabilities = _ANY_GANGS,
    tenants: Sequence[Tenant] = (),
) -> None:
    """Raise ImpossibleJobError for the first job that could never run; name its file and line.

    The rules are those of admission to the cluster, under a policy or mechanism with these
    capabilities, and the limits of ``tenants``. In addition no job arrives after, or runs for,
    centuries. A job listed twice is an InputError.
    """
    for _, error in _impossible_jobs(_as_trace(jobs), speeds, cluster, capabilities, tenants):
        raise error


def skip_impossible(
    jobs: Sequence[Job],
    speeds: SpeedTable,
    cluster: Cluster,
    capabilities: Capabilities = _ANY_GANGS,
    tenants: Sequence[Tenant] = (),
) -> tuple[Trace, tuple[SkippedJob, ...]]:
    """Return the jobs that can run and those that could never run, by the same rules.

    Raises InputError if no job is left.
    """
    trace = _as_trace(jobs)
    errors = dict(_impossible_jobs(trace, speeds, cluster, capabilities, tenants))
    if errors and len(errors) == len(trace):
        first = errors[0]
        raise InputError(
            f"none of the {len(trace)} jobs can run; first: {first.problem}",
            fix=first.fix,
            source=trace.source or None,
        )
    kept = [i for i in range(len(trace)) if i not in errors]
    left = Trace(
        tuple(trace.jobs[i] for i in kept),
        tuple(trace.lines[i] for i in kept) if trace.lines else (),
        trace.source,
    )
    return left, tuple(SkippedJob.of(trace.jobs[i].id, error) for i, error in errors.items())


def _as_trace(jobs: Sequence[Job]) -> Trace:
    return jobs if isinstance(jobs, Trace) else Trace(tuple(jobs))


def _impossible_jobs(
    trace: Trace,
    speeds: SpeedTable,
    cluster: Cluster,
    capabilities: Capabilities,
    tenants: Sequence[Tenant],
) -> Iterator[tuple[int, ImpossibleJobError]]:
    """Yield the index of each job that could never run, with the error that names the job."""
    admission = Admission(cluster, speeds, cluster.counts, capabilities)
    limits = _limits(tenants, cluster)
    ids: set[str] = set()
    best: dict[tuple[object, ...], float] = {}
    for i, job in enumerate(trace):
        if job.id in ids:
            twice = InputError(
                f"job {quote(job.id)} listed twice", fix="expected a unique id for every job"
            )
            raise trace.locate_error(twice, i)
        ids.add(job.id)
        try:
            needs = requirements(job)
            if needs not in best:
                if job.workload not in speeds.gangs:
                    raise unknown_name_error("workload", job.workload, speeds.workloads).within(
                        field="workload"
                    )
                admission.check(job)
                best[needs] = admission.best_speed(job)
            _check_time(job, best[needs])
            if job.tenant in limits:
                admission.check_limit(job, limits[job.tenant])
        except InputError as error:
            located = trace.locate_error(error, i)
            named = f"job {quote(job.id)}"
            yield (
                i,
                ImpossibleJobError(
                    error.problem if named in error.problem else f"{named}: {error.problem}",
                    fix=error.fix,
                    source=located.source,
                    line=located.line,
                    field=error.field,
                ),
            )


def _limits(tenants: Sequence[Tenant], cluster: Cluster) -> dict[str, FloatArray]:
    """Return tenant → accelerators → devices that it may hold, for tenants with limits."""
    limits = zip(tenants, TenantTree(tenants).limits(cluster.accelerators), strict=True)
    return {tenant.id: limit for tenant, limit in limits if np.isfinite(limit).any()}


def _check_time(job: Job, steps_per_s: float) -> None:
    """Raise InputError for times that no simulation reaches."""
    if job.arrival_at > _MAX_DURATION_S:
        raise InputError(
            f"job {quote(job.id)} arrives after {job.arrival_at:g} s, more than 300 years",
            fix=f"expected seconds, at most {_MAX_DURATION_S:g}",
            field="arrival_s",
        )
    if job.total_steps > _MAX_DURATION_S * steps_per_s:
        raise InputError(
            f"job {quote(job.id)} needs {job.total_steps / steps_per_s:g} s on its fastest"
            " accelerator, more than 300 years",
            fix=f"expected at most {_MAX_DURATION_S * steps_per_s:g} steps",
            field="total_steps",
        )
