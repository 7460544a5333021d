"""Logs of other systems as traces: what they lack is drawn from a speeds table."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fairlead.files.parsing.fields import quoted, unknown
from fairlead.files.parsing.text import (
    Text,
    decode,
    read_bytes,
    shortened,
)
from fairlead.files.traces import itp, philly
from fairlead.files.traces.alibaba import alibaba_shapes
from fairlead.files.traces.formats import LOG_FORMATS, Form, detect_format
from fairlead.files.traces.gavel import parse_gavel_trace
from fairlead.files.traces.helios import helios_shapes
from fairlead.files.traces.jobs import Trace, by_arrival
from fairlead.files.traces.sacct import sacct_shapes
from fairlead.files.traces.trace import parse_trace
from fairlead.files.traces.workload_sampling import Draw, JobShape
from fairlead.model.errors import InputError, UsageError
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedTable


@dataclass(frozen=True, slots=True)
class Converted:
    """A trace made from another system's log."""

    trace: Trace
    form: Form
    left_out: int = 0
    """Rows that are no training job: steps, jobs without devices, jobs that never ran."""


def convert(
    path: str | Path,
    speeds: SpeedTable,
    *,
    form: Form | None = None,
    seed: int = 0,
    tenant: str | None = None,
    max_gang: int | None = None,
) -> Converted:
    """Return the log at ``path`` as a trace; its form is told by its content unless given.

    ``tenant`` keeps one virtual cluster (Philly, Helios), cluster (ITP), account (Slurm) or
    class of service (Alibaba) only. ``max_gang`` bounds the gangs of logs that name no workload;
    those of Gavel's logs are kept.
    """
    data = read_bytes(path)
    source = shortened(str(path))
    if form in (None, "itp") and itp.is_tar(data):
        form, parts = "itp", itp.unpack(data, source)
    else:
        text = decode(data, source)
        form, parts = form or _told(text), [(_stem(path), text)]
    if form in ("gavel", "trace"):
        text = parts[0][1]
        if max_gang is not None:
            raise UsageError(
                f"--max-gang {max_gang} is for logs that name no workload; the gangs of"
                f" {'a trace' if form == 'trace' else 'a log of Gavel'} are kept, so leave it out"
            )
        return Converted(_kept(_jobs_of(form, text, speeds), tenant), form)
    draw = Draw(speeds, seed=seed, max_gang=max_gang)
    shapes = [
        (part, line, shape)
        for cluster, part in parts
        for line, shape in _shapes(form, cluster, part)
    ]
    return _drawn(shapes, draw, form=form, source=source, tenant=tenant)


def _told(text: Text) -> Form:
    """Return the form of a log, or refuse what is none that we know."""
    form = detect_format(text)
    lines = (line for line in text.body.splitlines() if line.strip() and line[0] != "#")
    first = next(lines, "")
    if form == "trace" and "job_id" not in first and not first.lstrip().startswith("{"):
        known = ", ".join(one for one in LOG_FORMATS if one != "trace")
        raise InputError(
            f"{quoted(first)} is the first line of no log that is known",
            fix=f"give a log of {known}, or name columns as a trace does: job_id, arrival_s, …",
            source=text.name,
        )
    return form


def _jobs_of(form: Form, text: Text, speeds: SpeedTable) -> Trace:
    return parse_gavel_trace(text, speeds) if form == "gavel" else parse_trace(text)


def _shapes(form: Form, cluster: str, text: Text) -> Iterator[tuple[int, JobShape | None]]:
    if form == "philly":
        return philly.philly_shapes(text)
    if form == "itp":
        return itp.itp_shapes(text, cluster)
    if form == "helios":
        return helios_shapes(text)
    if form == "alibaba":
        return alibaba_shapes(text)
    return sacct_shapes(text)


def _drawn(
    shapes: Iterable[tuple[Text, int, JobShape | None]],
    draw: Draw,
    *,
    form: Form,
    source: str,
    tenant: str | None,
) -> Converted:
    """Return the jobs of the shapes that are of the tenant, the first of them arriving at 0."""
    listed = list(shapes)
    ran = [(text, line, shape) for text, line, shape in listed if shape is not None]
    kept = [row for row in ran if tenant is None or row[2].tenant == tenant]
    if not ran:
        raise InputError("no row is a job that ran on GPUs", fix="give others", source=source)
    if not kept:
        names = dict.fromkeys(shape.tenant for _, _, shape in ran)
        raise unknown("tenant", str(tenant), names).within(source=source)
    first = min(shape.arrival_s for _, _, shape in kept)
    jobs: list[Job] = []
    for text, line, shape in kept:
        try:
            jobs.append(draw.job(replace(shape, arrival_s=shape.arrival_s - first)))
        except InputError as error:
            raise error.within(source=text.name, line=line) from None
    trace = by_arrival(jobs, [line for _, line, _ in kept], source)
    return Converted(trace, form, left_out=len(listed) - len(ran))


def _kept(trace: Trace, tenant: str | None) -> Trace:
    if tenant is None:
        return trace
    kept = [i for i, job in enumerate(trace) if job.tenant == tenant]
    if not kept:
        names = dict.fromkeys(job.tenant for job in trace)
        raise unknown("tenant", tenant, names).within(source=trace.source)
    return by_arrival([trace[i] for i in kept], [trace.lines[i] for i in kept], trace.source)


def _stem(path: str | Path) -> str:
    return Path(path).name.removesuffix(".gz").removesuffix(".csv") or "log"
