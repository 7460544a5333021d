"""Speed tables: CSV in and out; reading also accepts Gavel's JSON and bundled tables."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from fairlead.files.bundled import SPEEDS, bundled_text
from fairlead.files.parsing.fields import (
    accelerator,
    closest_name,
    format_number,
    name,
    quote,
    speed,
    whole_number,
)
from fairlead.files.parsing.table import format_table, read_table
from fairlead.files.parsing.text import SourceText, read_text, write_text
from fairlead.files.speeds.gavel import parse_gavel_speeds
from fairlead.model.errors import InputError
from fairlead.model.speeds.table import Consolidation, SpeedKey, SpeedTable

T = TypeVar("T")

REQUIRED = ("workload", "gang", "accelerator", "steps_per_s")
INTERVAL = ("steps_per_s_low", "steps_per_s_high")
"""95 % confidence interval of a measured speed; no decision uses it"""
OPTIONAL = ("placement", "partner", "partner_steps_per_s", *INTERVAL)
HEADER = (*REQUIRED[:3], *OPTIONAL[:2], "steps_per_s", "partner_steps_per_s")


def read_speeds(path: str | Path) -> SpeedTable:
    """Return the table of a CSV file, of Gavel's throughput JSON, or a bundled one by name."""
    if str(path) in SPEEDS:
        return parse_speeds(bundled_text(SPEEDS[str(path)].file))
    try:
        text = read_text(path)
    except InputError as error:
        if "." in str(path):
            raise
        close = closest_name(str(path), SPEEDS)
        bundled = f"did you mean {close}?" if close else f"a bundled table: {', '.join(SPEEDS)}"
        fix = f"{error.fix}, or {bundled}"
        raise InputError(error.problem, fix=fix, source=error.source) from None
    return parse_speeds(text)


def parse_speeds(text: SourceText) -> SpeedTable:
    """Return the table of a text, CSV or Gavel's JSON."""
    if text.body.lstrip().startswith(("{", "[")):
        speeds = parse_gavel_speeds(text)
    else:
        speeds = _Rows(text).steps_per_s
    if not any(speeds.values()):
        raise InputError("all speeds are 0", fix="expected some above 0", source=text.name)
    return SpeedTable(speeds, source=text.name)


class _Rows:
    """The speeds of a CSV's rows and their lines, to detect duplicates."""

    def __init__(self, text: SourceText) -> None:
        self.steps_per_s: dict[SpeedKey, float] = {}
        self._lines: dict[SpeedKey, int] = {}
        table = read_table(text, required=REQUIRED, optional=OPTIONAL)
        for line, row in zip(table.lines, table.rows, strict=True):
            cells = dict(zip(table.header, map(str.strip, row), strict=True))
            try:
                self._row(cells, line)
            except InputError as error:
                raise error.within(source=text.name, line=line) from None

    def _row(self, cells: dict[str, str], line: int) -> None:
        key = SpeedKey(
            _cell(cells, "workload", name),
            _gang(cells),
            _cell(cells, "accelerator", accelerator),
            _placement(cells.get("placement", "")),
            _cell(cells, "partner", name) if cells.get("partner") else None,
        )
        own = _cell(cells, "steps_per_s", speed)
        for column in INTERVAL:
            if cells.get(column):
                _cell(cells, column, speed)
        if key.partner is None:
            if cells.get("partner_steps_per_s"):
                raise InputError(
                    "speed of a partner without a partner",
                    fix="expected a partner or an empty cell",
                    field="partner_steps_per_s",
                )
            self._set(key, own, line)
            return
        others = _cell(cells, "partner_steps_per_s", speed)
        if key.partner == key.workload:
            # Two equal jobs have no order: each is as likely to have either speed.
            self._set(key, (own + others) / 2, line)
            return
        self._set(key, own, line)
        self._set(key._replace(workload=key.partner, partner=key.workload), others, line)

    def _set(self, key: SpeedKey, steps_per_s: float, line: int) -> None:
        before = self._lines.setdefault(key, line)
        if before != line and self.steps_per_s[key] != steps_per_s:
            raise InputError(f"another speed than line {before}", fix="remove one")
        if before != line and key.partner is None:
            raise InputError(f"duplicate of line {before}", fix="remove one")
        self.steps_per_s[key] = steps_per_s


def _cell(cells: dict[str, str], column: str, read: Callable[[object], T]) -> T:
    try:
        return read(cells.get(column, ""))
    except InputError as error:
        raise error.within(field=column) from None


def _gang(cells: dict[str, str]) -> int:
    gang = _cell(cells, "gang", whole_number)
    if gang < 1:
        raise InputError(f"out of range: {gang}", fix="expected 1 or more", field="gang")
    return gang


def _placement(text: str) -> Consolidation:
    if text not in ("", "consolidated", "spread"):
        raise InputError(
            f"unknown placement {quote(text)}",
            fix="expected consolidated, spread or an empty cell",
            field="placement",
        )
    return cast("Consolidation", text or "consolidated")


def format_speeds(table: SpeedTable) -> str:
    """Return the table as CSV that reads back as the same table; each pair appears once."""
    rows = []
    written: set[SpeedKey] = set()
    for key, own in table.steps_per_s.items():
        others = ""
        if key.partner is not None:
            back = key._replace(workload=key.partner, partner=key.workload)
            if back in written:
                continue
            others = format_number(table.steps_per_s.get(back, 0.0))
        written.add(key)
        placement = "spread" if key.placement == "spread" else ""
        cells = (key.workload, str(key.gang), key.accelerator, placement, key.partner or "")
        rows.append((*cells, format_number(own), others))
    return format_table(HEADER, rows)


def write_speeds(table: SpeedTable, path: str | Path) -> None:
    """Write the table to a CSV file, gzipped if the name ends in .gz."""
    write_text(path, format_speeds(table))
