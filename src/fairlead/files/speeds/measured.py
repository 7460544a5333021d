"""Measured speeds with confidence intervals: rows of a speed table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlead.files.parsing.table import format_table, read_table
from fairlead.files.parsing.text import read_text, write_text
from fairlead.files.speeds.table import HEADER, INTERVAL, OPTIONAL, REQUIRED, parse_speeds

_HEADER = (*HEADER, *INTERVAL)


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """The speed of a workload on one accelerator, and its 95 % confidence interval."""

    workload: str
    gang: int
    accelerator: str
    steps_per_s: float
    low: float
    high: float
    partner: str = ""
    """workload on the same device; empty for none"""
    partner_steps_per_s: float = 0.0


def check_target(path: Path) -> None:
    """Raise InputError if there is a file to which measured speeds cannot be added."""
    if path.exists():
        _rows(path)


def add_speeds(path: Path, measured: Sequence[MeasuredSpeed]) -> None:
    """Write measured speeds to a CSV table; its other rows stay as they are."""
    own = {(one.workload, str(one.gang), one.accelerator, one.partner) for one in measured}
    rows = [
        row
        for row in (_rows(path) if path.exists() else [])
        if row["placement"] or _key(row) not in own
    ]
    rows += [
        {
            "workload": one.workload,
            "gang": str(one.gang),
            "accelerator": one.accelerator,
            "partner": one.partner,
            "partner_steps_per_s": f"{one.partner_steps_per_s:.6g}" if one.partner else "",
            "steps_per_s": f"{one.steps_per_s:.6g}",
            INTERVAL[0]: f"{one.low:.6g}",
            INTERVAL[1]: f"{one.high:.6g}",
        }
        for one in measured
    ]
    cells = [[row.get(column, "") for column in _HEADER] for row in rows]
    write_text(path, format_table(_HEADER, cells))


def _key(row: dict[str, str]) -> tuple[str, str, str, str]:
    return row["workload"], row["gang"], row["accelerator"], row["partner"]


def _rows(path: Path) -> list[dict[str, str]]:
    """Return the cells of a table by column; InputError if it is not a valid one."""
    text = read_text(path)
    parse_speeds(text)
    table = read_table(text, required=REQUIRED, optional=OPTIONAL)
    empty = dict.fromkeys(_HEADER, "")
    return [
        {**empty, **dict(zip(table.header, map(str.strip, row), strict=True))}
        for row in table.rows
    ]
