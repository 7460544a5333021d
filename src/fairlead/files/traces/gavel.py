"""Gavel's .trace files: tab-separated, no header, ten columns, or seven in older files."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from fairlead.files.parsing import fields
from fairlead.files.parsing.fields import (
    name,
    number,
    quote,
    whole_number,
)
from fairlead.files.parsing.text import SourceText
from fairlead.files.traces.jobs import Trace, by_arrival
from fairlead.model.errors import InputError
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedTable

T = TypeVar("T")

# number of columns → indices of workload, steps, gang, weight, SLO and arrival; None: absent
_LAYOUTS: dict[int, tuple[int, int, int, int | None, int | None, int]] = {
    10: (0, 5, 6, 7, 8, 9),
    7: (0, 4, 6, None, None, 5),
}
REFERENCE = "v100"


def is_gavel_trace(text: SourceText) -> bool:
    """Return whether the first line has the tab-separated columns of a Gavel trace."""
    first = text.body.lstrip("\n").partition("\n")[0]
    return first.count("\t") + 1 in _LAYOUTS and not first.startswith("job_id")


def parse_gavel_trace(text: SourceText, speeds: SpeedTable | None = None) -> Trace:
    """Return the jobs of a Gavel trace, numbered from 0 in the file's order.

    Gavel states a deadline as a multiple of the job's duration on a V100, so a trace with
    deadlines needs a speed table.
    """
    text.check_lines()
    jobs: list[Job] = []
    lines: list[int] = []
    for line, row in enumerate(text.body.split("\n"), start=1):
        if not row.strip():
            continue
        try:
            jobs.append(_job(row.split("\t"), str(len(jobs)), speeds))
        except InputError as error:
            raise error.within(source=text.name, line=line) from None
        lines.append(line)
    return by_arrival(jobs, lines, text.name)


def _job(cells: list[str], label: str, speeds: SpeedTable | None) -> Job:
    layout = _LAYOUTS.get(len(cells))
    if layout is None:
        raise InputError(
            f"{len(cells)} cells in the row", fix="expected 10, or 7 in older traces of Gavel"
        )
    workload, steps, gang, weight, slo, arrival = layout
    job = Job(
        id=label,
        workload=_read(name, cells[workload], "job_type"),
        total_steps=_read(fields.steps, cells[steps], "total_steps"),
        gang=_read(whole_number, cells[gang], "scale_factor"),
        arrival_at=_read(number, cells[arrival], "arrival_s"),
        weight=_read(fields.weight, cells[weight], "priority_weight")
        if weight is not None
        else 1.0,
    )
    factor = _read(number, cells[slo], "SLO") if slo is not None else -1.0
    return job if factor < 0 else _with_deadline(job, factor, speeds)


def _with_deadline(job: Job, factor: float, speeds: SpeedTable | None) -> Job:
    if speeds is None:
        raise InputError(
            f"{factor} times the duration needs a speed table",
            fix="convert the trace: fairlead trace convert --speeds FILE",
            field="SLO",
        )
    speeds.require(job.workload, job.gang)
    per_s = speeds.speed(job.workload, (REFERENCE,) * job.gang)
    if per_s <= 0:
        raise InputError(
            f"no speed of {quote(job.workload)} on {REFERENCE}",
            fix="expected a speed table with it",
            field="SLO",
        )
    duration_s = job.total_steps / per_s
    return replace(job, deadline_s=factor * duration_s, duration_s=duration_s)


def _read(read: Callable[[object], T], value: object, field: str) -> T:
    try:
        return read(value)
    except InputError as error:
        raise error.within(field=field) from None
