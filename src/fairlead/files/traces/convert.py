"""Conversion of other systems' logs to traces; missing workloads are drawn from a speed table."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fairlead.files.parsing.fields import quote, unknown_name_error
from fairlead.files.parsing.text import (
    SourceText,
    decode,
    read_bytes,
    shorten,
)
from fairlead.files.traces import itp, philly
from fairlead.files.traces.alibaba import alibaba_shapes
from fairlead.files.traces.formats import LOG_FORMATS, LogFormat, detect_format
from fairlead.files.traces.gavel import parse_gavel_trace
from fairlead.files.traces.helios import helios_shapes
from fairlead.files.traces.jobs import Trace, by_arrival
from fairlead.files.traces.sacct import sacct_shapes
from fairlead.files.traces.trace import parse_trace
from fairlead.files.traces.workload_sampling import JobShape, WorkloadSampler
from fairlead.model.errors import InputError, UsageError
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedTable


@dataclass(frozen=True, slots=True)
class Converted:
    """A trace made from another system's log."""

    trace: Trace
    form: LogFormat
    left_out: int = 0
    """rows that are not training jobs: steps, jobs without devices, jobs that never ran"""


def convert(
    path: str | Path,
    speeds: SpeedTable,
    *,
    form: LogFormat | None = None,
    seed: int = 0,
    tenant: str | None = None,
    max_gang: int | None = None,
) -> Converted:
    """Return the log at ``path`` as a trace; without ``form``, detect the format.

    ``tenant`` keeps only one virtual cluster (Philly, Helios), cluster (ITP), account (Slurm) or
    class of service (Alibaba). ``max_gang`` bounds the gangs of logs without workloads; gangs of
    Gavel's logs stay.
    """
    data = read_bytes(path)
    source = shorten(str(path))
    if form in (None, "itp") and itp.is_tar(data):
        form, parts = "itp", itp.unpack(data, source)
    else:
        text = decode(data, source)
        form, parts = form or _detect_format(text), [(_stem(path), text)]
    if form in ("gavel", "trace"):
        text = parts[0][1]
        if max_gang is not None:
            raise UsageError(
                f"--max-gang: not supported for {'a trace' if form == 'trace' else 'a Gavel log'}:"
                " its workloads are known, so its gangs stay"
            )
        return Converted(_only_tenant(_jobs_of(form, text, speeds), tenant), form)
    sampler = WorkloadSampler(speeds, seed=seed, max_gang=max_gang)
    shapes = [
        (part, line, shape)
        for cluster, part in parts
        for line, shape in _shapes(form, cluster, part)
    ]
    return _sample_jobs(shapes, sampler, form=form, source=source, tenant=tenant)


def _detect_format(text: SourceText) -> LogFormat:
    """Return the format of a log; raise InputError for an unknown one."""
    form = detect_format(text)
    lines = (line for line in text.body.splitlines() if line.strip() and line[0] != "#")
    first = next(lines, "")
    if form == "trace" and "job_id" not in first and not first.lstrip().startswith("{"):
        known = ", ".join(form for form in LOG_FORMATS if form != "trace")
        raise InputError(
            f"unknown log format, first line {quote(first)}",
            fix=f"expected a log of {known}, or the columns of a trace: job_id, arrival_s, …",
            source=text.name,
        )
    return form


def _jobs_of(form: LogFormat, text: SourceText, speeds: SpeedTable) -> Trace:
    return parse_gavel_trace(text, speeds) if form == "gavel" else parse_trace(text)


def _shapes(
    form: LogFormat, cluster: str, text: SourceText
) -> Iterator[tuple[int, JobShape | None]]:
    if form == "philly":
        return philly.philly_shapes(text)
    if form == "itp":
        return itp.itp_shapes(text, cluster)
    if form == "helios":
        return helios_shapes(text)
    if form == "alibaba":
        return alibaba_shapes(text)
    return sacct_shapes(text)


def _sample_jobs(
    shapes: Iterable[tuple[SourceText, int, JobShape | None]],
    sampler: WorkloadSampler,
    *,
    form: LogFormat,
    source: str,
    tenant: str | None,
) -> Converted:
    """Return the jobs of a tenant's shapes (None: of all); the first arrives at 0."""
    listed = list(shapes)
    ran = [(text, line, shape) for text, line, shape in listed if shape is not None]
    kept = [row for row in ran if tenant is None or row[2].tenant == tenant]
    if not ran:
        raise InputError("no completed GPU jobs", fix="expected at least one", source=source)
    if not kept:
        names = dict.fromkeys(shape.tenant for _, _, shape in ran)
        raise unknown_name_error("tenant", str(tenant), names).within(source=source)
    first = min(shape.arrival_s for _, _, shape in kept)
    jobs: list[Job] = []
    for text, line, shape in kept:
        try:
            jobs.append(sampler.job(replace(shape, arrival_s=shape.arrival_s - first)))
        except InputError as error:
            raise error.within(source=text.name, line=line) from None
    trace = by_arrival(jobs, [line for _, line, _ in kept], source)
    return Converted(trace, form, left_out=len(listed) - len(ran))


def _only_tenant(trace: Trace, tenant: str | None) -> Trace:
    if tenant is None:
        return trace
    kept = [i for i, job in enumerate(trace) if job.tenant == tenant]
    if not kept:
        names = dict.fromkeys(job.tenant for job in trace)
        raise unknown_name_error("tenant", tenant, names).within(source=trace.source)
    return by_arrival([trace[i] for i in kept], [trace.lines[i] for i in kept], trace.source)


def _stem(path: str | Path) -> str:
    return Path(path).name.removesuffix(".gz").removesuffix(".csv") or "log"
