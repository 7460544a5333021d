"""Checks that the jobs of a trace can run on a cluster at given speeds."""

from collections.abc import Sequence

from fairlead.files.parsing.fields import quote, unknown_name_error
from fairlead.files.traces.jobs import Trace
from fairlead.model.capabilities import Capabilities
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.submission.admission import Admission, requirements

_MAX_DURATION_S = 1e10
_ANY_GANGS = Capabilities(per_accelerator_gangs=True)


def check_trace(
    jobs: Sequence[Job],
    speeds: SpeedTable,
    cluster: Cluster,
    capabilities: Capabilities = _ANY_GANGS,
) -> None:
    """Raise InputError for the first job that could never run; a Trace's names file and line.

    The rules are those of admission to the cluster, under a policy or mechanism with these
    capabilities. In addition no job arrives after, or runs for, centuries.
    """
    trace = jobs if isinstance(jobs, Trace) else Trace(tuple(jobs))
    admission = Admission(cluster, speeds, cluster.counts, capabilities)
    ids: set[str] = set()
    best: dict[tuple[object, ...], float] = {}
    for i, job in enumerate(trace):
        try:
            if job.id in ids:
                raise InputError(
                    f"job {quote(job.id)} listed twice", fix="expected a unique id for every job"
                )
            ids.add(job.id)
            needs = requirements(job)
            if needs not in best:
                if job.workload not in speeds.gangs:
                    raise unknown_name_error("workload", job.workload, speeds.workloads).within(
                        field="workload"
                    )
                admission.check(job)
                best[needs] = admission.best_speed(job)
            _check_time(job, best[needs])
        except InputError as error:
            raise trace.locate_error(error, i) from None


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
