"""Traces: CSV and JSONL in and out; reading also accepts Gavel's format."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from fairlead.files.parsing import strict_json
from fairlead.files.parsing.fields import (
    accelerator,
    format_number,
    gibibytes,
    name,
    number,
    seconds,
    speed,
    steps,
    unknown_name_error,
    weight,
    whole_number,
)
from fairlead.files.parsing.table import format_table, read_table
from fairlead.files.parsing.text import SourceText, read_text, write_text
from fairlead.files.traces.formats import detect_format
from fairlead.files.traces.gavel import parse_gavel_trace
from fairlead.files.traces.jobs import Trace, by_arrival
from fairlead.model.errors import InputError
from fairlead.model.job import Job, format_accelerators, parse_accelerators


def _accelerators(value: object) -> tuple[str, ...]:
    """Return the entries of ``v100;k80=2``, or of a list, as text."""
    if isinstance(value, str):
        value = value.replace(",", ";").split(";")
    entries = strict_json.array(value)
    return tuple(_accelerator(entry) for entry in entries)


def _accelerator(entry: object) -> str:
    label, equals, count = name(entry).partition("=")
    return f"{accelerator(label)}{equals}{count}"


def _declared_speeds(value: object) -> dict[str, float]:
    """Return accelerator → steps per second of ``v100=3.2;k80=0.8``, or of an object."""
    if isinstance(value, str):
        value = dict(entry.partition("=")[::2] for entry in value.replace(",", ";").split(";"))
    declared = strict_json.mapping(value)
    return {accelerator(label): speed(steps_per_s) for label, steps_per_s in declared.items()}


# column → field of Job, and the reader of its value
_COLUMNS: Mapping[str, tuple[str, Callable[[object], object]]] = {
    "job_id": ("id", name),
    "arrival_s": ("arrival_at", number),
    "workload": ("workload", name),
    "gang": ("gang", whole_number),
    "total_steps": ("total_steps", steps),
    "tenant": ("tenant", name),
    "weight": ("weight", weight),
    "priority": ("priority", whole_number),
    "deadline_s": ("deadline_s", seconds),
    "min_gang": ("min_gang", whole_number),
    "max_gang": ("max_gang", whole_number),
    "max_copies": ("max_copies", whole_number),
    "accelerators": ("accelerators", _accelerators),
    "memory_gib": ("memory_gib", gibibytes),
    "utilization": ("utilization", number),
    "multijob": ("multijob", name),
    "duration_s": ("duration_s", number),
    "speeds": ("declared_speeds", _declared_speeds),
}
COLUMNS = tuple(_COLUMNS)
REQUIRED = COLUMNS[:5]
_REQUIRED_FIELDS = frozenset(_COLUMNS[column][0] for column in REQUIRED)


def read_trace(path: str | Path) -> Trace:
    """Return the jobs of a CSV, JSONL or Gavel trace, gzipped or not, sorted by arrival.

    Jobs that arrive together keep the file's order.
    """
    return parse_trace(read_text(path))


def parse_trace(text: SourceText) -> Trace:
    """Return the jobs of a text, sorted by arrival."""
    form = detect_format(text)
    if form == "gavel":
        return parse_gavel_trace(text)
    if form != "trace":
        raise InputError(
            f"log in {form} format, without workloads",
            fix=f"convert it: fairlead trace convert --from {form} --speeds SPEEDS IN OUT",
            source=text.name,
        )
    jsonl = text.body.lstrip().startswith(("{", "["))
    jobs: list[Job] = []
    lines: list[int] = []
    for line, fields in _json_rows(text) if jsonl else _csv_rows(text):
        try:
            jobs.append(_job(fields))
        except InputError as error:
            raise error.within(source=text.name, line=line) from None
        lines.append(line)
    return by_arrival(jobs, lines, text.name)


def _job(fields: dict[str, Any]) -> Job:
    if not fields.keys() >= _REQUIRED_FIELDS:
        column = next(c for c in REQUIRED if _COLUMNS[c][0] not in fields)
        raise InputError("missing", fix="expected a value", field=column)
    listed = fields.get("accelerators")
    if listed:
        fields["accelerators"], fields["gangs"] = parse_accelerators(listed)
    return Job(**fields)


def _csv_rows(text: SourceText) -> Iterator[tuple[int, dict[str, object]]]:
    table = read_table(text, required=REQUIRED, optional=COLUMNS[len(REQUIRED) :])
    plan = [(column, *_COLUMNS[column]) for column in table.header]
    for line, row in zip(table.lines, table.rows, strict=True):
        fields: dict[str, object] = {}
        for (column, field, read), cell in zip(plan, row, strict=True):
            if cell and not cell.isspace():
                try:
                    fields[field] = read(cell)
                except InputError as error:
                    raise error.within(source=text.name, line=line, field=column) from None
        yield line, fields


def _json_rows(text: SourceText) -> Iterator[tuple[int, dict[str, object]]]:
    text.check_lines()
    for line, body in enumerate(text.body.split("\n"), start=1):
        if not body.strip():
            continue
        held = strict_json.parse(body, source=text.name, line=line)
        fields: dict[str, object] = {}
        column = None
        try:
            for column, value in strict_json.mapping(held).items():
                if column not in _COLUMNS:
                    raise unknown_name_error("field", column, COLUMNS)
                if value is not None:
                    field, read = _COLUMNS[column]
                    fields[field] = read(value)
        except InputError as error:
            field_name = column if column in _COLUMNS else None
            raise error.within(source=text.name, line=line, field=field_name) from None
        yield line, fields


def format_trace(jobs: Iterable[Job], form: Literal["csv", "jsonl"] = "csv") -> str:
    """Return jobs as text that reads back as the same jobs; CSV has only used columns."""
    listed = list(jobs)
    if form == "jsonl":
        return "".join(json.dumps(job_members(job), ensure_ascii=False) + "\n" for job in listed)
    used = [
        (column, field)
        for column, (field, _) in _COLUMNS.items()
        if column in REQUIRED or any(getattr(j, field) != _default(field) for j in listed)
    ]
    rows = [[_cell(_file_value(job, field)) for _, field in used] for job in listed]
    return format_table([column for column, _ in used], rows)


def job_members(job: Job) -> dict[str, object]:
    """Return a job as a JSON object, without members equal to their defaults."""
    return {
        column: list(value) if isinstance(value, tuple) else value
        for column, (field, _) in _COLUMNS.items()
        if (value := _file_value(job, field)) != _default(field) or column in REQUIRED
    }


def _file_value(job: Job, field: str) -> object:
    """Return a field's value as written to a file."""
    return format_accelerators(job) if field == "accelerators" else getattr(job, field)


def _default(field: str) -> object:
    return {} if field == "declared_speeds" else Job.__dataclass_fields__[field].default


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ";".join(value)
    if isinstance(value, Mapping):
        return ";".join(f"{label}={format_number(held)}" for label, held in value.items())
    return format_number(value) if isinstance(value, float) else str(value)


def write_trace(jobs: Iterable[Job], path: str | Path) -> None:
    """Write jobs as JSONL if the name ends so, otherwise as CSV; gzipped if it ends in .gz."""
    jsonl = str(path).removesuffix(".gz").endswith((".jsonl", ".ndjson"))
    write_text(path, format_trace(jobs, "jsonl" if jsonl else "csv"))
