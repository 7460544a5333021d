"""Gavel's .trace files: tab-separated, no header, ten columns or, for the older ones, seven."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from fairlead.files.parsing.fields import (
    name,
    number,
    quoted,
    whole,
)
from fairlead.files.parsing.text import Text
from fairlead.files.traces.jobs import Trace, by_arrival
from fairlead.model.errors import InputError
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedTable

T = TypeVar("T")

# columns → where workload, steps, gang, weight, SLO and arrival stand; None: not there
_FORMS: dict[int, tuple[int, int, int, int | None, int | None, int]] = {
    10: (0, 5, 6, 7, 8, 9),
    7: (0, 4, 6, None, None, 5),
}
REFERENCE = "v100"


def is_gavel_trace(text: Text) -> bool:
    """Return whether the first line has the columns of a Gavel trace, tabs between."""
    first = text.body.lstrip("\n").partition("\n")[0]
    return first.count("\t") + 1 in _FORMS and not first.startswith("job_id")


def parse_gavel_trace(text: Text, speeds: SpeedTable | None = None) -> Trace:
    """Return the jobs of a Gavel trace, numbered from 0 in the file's order.

    Gavel states a deadline as a multiple of the job's duration on a V100, so jobs that have
    one need a speeds table to tell that duration.
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
    form = _FORMS.get(len(cells))
    if form is None:
        raise InputError(
            f"the row has {len(cells)} cells", fix="Gavel's traces have 10, older ones 7"
        )
    workload, steps, gang, weight, slo, arrival = form
    job = Job(
        id=label,
        workload=_read(name, cells[workload], "job_type"),
        total_steps=_read(number, cells[steps], "total_steps"),
        gang=_read(whole, cells[gang], "scale_factor"),
        arrival_at=_read(number, cells[arrival], "arrival_s"),
        weight=_read(number, cells[weight], "priority_weight") if weight is not None else 1.0,
    )
    factor = _read(number, cells[slo], "SLO") if slo is not None else -1.0
    return job if factor < 0 else _with_deadline(job, factor, speeds)


def _with_deadline(job: Job, factor: float, speeds: SpeedTable | None) -> Job:
    if speeds is None:
        raise InputError(
            f"an SLO of {factor} times the duration needs speeds",
            fix="convert the trace with a speeds table: fairlead trace convert --speeds FILE",
            field="SLO",
        )
    speeds.require(job.workload, job.gang)
    per_s = speeds.speed(job.workload, (REFERENCE,) * job.gang)
    if per_s <= 0:
        raise InputError(
            f"{quoted(job.workload)} does not run on {REFERENCE}",
            fix="use a speeds table that has it there",
            field="SLO",
        )
    duration_s = job.total_steps / per_s
    return replace(job, deadline_s=factor * duration_s, duration_s=duration_s)


def _read(read: Callable[[object], T], value: object, field: str) -> T:
    try:
        return read(value)
    except InputError as error:
        raise error.within(field=field) from None
