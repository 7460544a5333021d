"""Slurm's accounting, as printed by ``sacct --parsable2``: a header, cells separated by |."""

import re
from collections.abc import Iterator

from fairlead.files.parsing.fields import name, number, quote
from fairlead.files.parsing.log_rows import RowCells, date_time_s, parse_rows
from fairlead.files.parsing.table import Table
from fairlead.files.parsing.text import SourceText
from fairlead.files.traces.workload_sampling import JobShape
from fairlead.model.errors import InputError
from fairlead.model.job import DEFAULT_TENANT

COMMAND = "sacct --parsable2 --format=JobID,Submit,ElapsedRaw,AllocTRES,Account"
_DEVICES = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")
# gres/gpu=4 in TRES, with the type counted again as gres/gpu:a100=4; gpu:4 or gpu:a100:4 in GRES
_COUNT = re.compile(r"(?:^|,)(?:gres/)?gpu(?:=|:(?:[^=:,]+[=:])?)(\d{1,6})(?=$|[,(])")
_ELAPSED = re.compile(r"(?:(\d{1,6})-)?(\d{1,2}):(\d{2}):(\d{2})")


def sacct_shapes(text: SourceText) -> Iterator[tuple[int, JobShape | None]]:
    """Yield line and shape of each job; None for steps, jobs without GPUs and jobs never run.

    The account is the tenant; without an account, the user is.
    """
    yield from parse_rows(_table(text), _shape)


def _table(text: SourceText) -> Table:
    text.check_lines()
    lines = [(i, row) for i, row in enumerate(text.body.split("\n"), 1) if row.strip()]
    header = tuple(cell.strip() for cell in lines[0][1].split("|"))
    lacking = next((c for c in ("JobID", "Submit") if c not in header), None)
    if lacking is None and not {"ElapsedRaw", "Elapsed"} & set(header):
        lacking = "ElapsedRaw"
    if lacking is None and not set(_DEVICES) & set(header):
        lacking = "AllocTRES"
    if lacking is not None:
        raise InputError(
            "missing column",
            fix=f"export with {COMMAND}",
            source=text.name,
            line=lines[0][0],
            field=lacking,
        )
    rows = [row.split("|") for _, row in lines[1:]]
    for (line, _), row in zip(lines[1:], rows, strict=True):
        if len(row) != len(header):
            raise InputError(
                f"{len(row)} cells in the row, {len(header)} in the header",
                fix=f"export with {COMMAND}",
                source=text.name,
                line=line,
            )
    if not rows:
        raise InputError("no rows", fix="expected rows below the header", source=text.name)
    return Table(text.name, header, rows, [line for line, _ in lines[1:]])


def _shape(cells: RowCells) -> JobShape | None:
    label = cells.read("JobID", name)
    if "." in label or cells.text("Submit") in ("Unknown", "None", ""):
        return None
    n_devices, duration_s = _n_devices(cells), _elapsed_s(cells)
    if n_devices == 0 or duration_s <= 0:
        return None
    return JobShape(
        id=label,
        arrival_s=cells.read("Submit", date_time_s),
        n_devices=n_devices,
        duration_s=duration_s,
        tenant=_tenant(cells),
    )


def _tenant(cells: RowCells) -> str:
    for column in ("Account", "User"):
        if cells.text(column):
            return cells.read(column, name)
    return DEFAULT_TENANT


def _elapsed_s(cells: RowCells) -> float:
    if cells.text("ElapsedRaw"):
        return cells.read("ElapsedRaw", number)
    text = cells.text("Elapsed")
    match = _ELAPSED.fullmatch(text)
    if match is None:
        raise InputError(
            f"not a duration: {quote(text)}", fix="expected [days-]hh:mm:ss", field="Elapsed"
        )
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _n_devices(cells: RowCells) -> int:
    for column in _DEVICES:
        text = cells.text(column)
        untyped = [int(n) for n in re.findall(r"(?:^|,)gres/gpu=(\d{1,6})(?=$|,)", text)]
        counts = untyped or [int(n) for n in _COUNT.findall(text)]
        if counts:
            return sum(counts)
    return 0
