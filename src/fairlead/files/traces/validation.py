"""Whether the jobs of a trace can run at all: on this cluster, at these speeds."""

from collections.abc import Mapping, Sequence

from fairlead.files.parsing.fields import quoted, unknown
from fairlead.files.traces.jobs import Trace
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.job import Job, per_accelerator_gangs_error
from fairlead.model.speeds.table import SpeedTable

_LONGEST_S = 1e10


def check_trace(
    jobs: Sequence[Job],
    speeds: SpeedTable,
    cluster: Cluster,
    *,
    mixes: bool = False,
    alternatives: bool = True,
) -> None:
    """Raise InputError for the first job that could never run; a Trace's names file and line.

    A job can run when the table has its workload and gang, and one accelerator that it may use
    runs it at a speed above 0, has the memory, and has devices for its smallest gang; or, where
    one gang may have devices of several accelerators (``mixes``), all such accelerators together.
    A job with numbers of devices for accelerators needs those there, and a policy that can give
    them (``alternatives``). None comes or runs for centuries.
    """
    trace = jobs if isinstance(jobs, Trace) else Trace(tuple(jobs))
    counts = cluster.count_by_name()
    ids: set[str] = set()
    memory = dict(zip(cluster.accelerators, cluster.memory_gib.tolist(), strict=True))
    fine: dict[tuple[object, ...], float] = {}
    for i, job in enumerate(trace):
        try:
            if job.id in ids:
                raise InputError(
                    f"job {quoted(job.id)} is there twice", fix="give every job its own id"
                )
            ids.add(job.id)
            needs = (job.workload, job.gang, job.min_gang, tuple(job.gangs.items()))
            kind = (*needs, job.accelerators, job.memory_gib)
            if kind not in fine:
                if job.gangs and not alternatives:
                    raise per_accelerator_gangs_error(job.id)
                fine[kind] = _check_job_class(job, speeds, counts, memory, mixes)
            _check_time(job, fine[kind])
        except InputError as error:
            raise trace.place(error, i) from None


def _check_job_class(
    job: Job,
    speeds: SpeedTable,
    counts: Mapping[str, int],
    memory: Mapping[str, float],
    mixes: bool,
) -> float:
    """Return the steps per second that such a job makes at most."""
    if job.workload not in speeds.gangs:
        found = unknown("workload", job.workload, speeds.workloads)
        raise found.within(field="workload")
    speeds.require(job.workload, job.gang)
    speeds.row_of(job, tuple(counts))
    allowed = [a for a in counts if job.accelerators is None or a in job.accelerators]
    if not allowed:
        raise InputError(
            f"job {quoted(job.id)} may use no accelerator of the cluster",
            fix=f"allow one of {', '.join(counts)}",
            field="accelerators",
        )
    if mixes:
        speed = {a: speeds.member_speed(job.workload, job.gang, a) * job.gang for a in allowed}
    else:
        speed = {a: speeds.speed(job.workload, (a,) * job.gang_on(a)) for a in allowed}
    able = [a for a in allowed if speed[a] > 0]
    if not able:
        on = ", ".join(f"{job.gangs[a]} {a}" if a in job.gangs else a for a in allowed)
        raise InputError(
            f"{quoted(job.workload)} with gang {job.gang} has speed 0 on {on}",
            fix="change its gang or accelerators, or the cluster",
            field="workload",
        )
    needs_gib = job.memory_gib or 0.0
    able = [a for a in able if memory[a] >= needs_gib]
    if not able:
        raise InputError(
            f"job {quoted(job.id)} needs {needs_gib:g} GiB a device, more than any that it can use"
            " has",
            fix="lower its memory_gib, or add devices with more memory",
            field="memory_gib",
        )
    if job.gangs:
        if all(job.gang_on(a) > counts[a] for a in able):
            several = " or ".join(f"{job.gang_on(a)} {a}" for a in able)
            there = ", ".join(f"{counts[a]} {a}" for a in able)
            raise InputError(
                f"job {quoted(job.id)} needs {several}, the cluster has {there}",
                fix="lower the numbers or add devices",
                field="accelerators",
            )
        return max(speed[a] for a in able)
    most = sum(counts[a] for a in able) if mixes else max(counts[a] for a in able)
    needed = job.min_gang or job.gang
    if needed > most:
        of = "" if mixes else " of one accelerator"
        raise InputError(
            f"job {quoted(job.id)} needs {needed} devices{of}, the cluster has {most} that it can"
            " use",
            fix="lower the gang or add devices",
            field="gang",
        )
    return max(speed[a] for a in able)


def _check_time(job: Job, steps_per_s: float) -> None:
    """Refuse what no simulation gets to the end of."""
    if job.arrival_at > _LONGEST_S:
        raise InputError(
            f"job {quoted(job.id)} arrives after {job.arrival_at:g} s, more than 300 years",
            fix=f"give arrivals in seconds, at most {_LONGEST_S:g}",
            field="arrival_s",
        )
    if job.total_steps > _LONGEST_S * steps_per_s:
        raise InputError(
            f"job {quoted(job.id)} needs {job.total_steps / steps_per_s:g} s where it runs best,"
            " more than 300 years",
            fix=f"give it at most {_LONGEST_S * steps_per_s:g} steps",
            field="total_steps",
        )
