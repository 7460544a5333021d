"""CSV tables with a header: checked column names, line numbers, no ragged rows."""

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from fairlead.files.parsing.fields import quote, unknown_name_error
from fairlead.files.parsing.text import SourceText
from fairlead.model.errors import InputError


@dataclass(frozen=True, slots=True)
class Table:
    """The column names of a table and its rows, with the line on which each row begins."""

    source: str
    header: tuple[str, ...]
    rows: list[list[str]]
    lines: list[int]


def read_table(
    text: SourceText, *, required: Collection[str], optional: Collection[str] = ()
) -> Table:
    """Return a table with the required columns, no unknown ones and at least one row."""
    text.check_lines()
    records = _records(text)
    line, head = next(records, (1, []))
    header = tuple(cell.strip() for cell in head)
    _check_header(header, required, optional, text.name, line)
    rows, lines = [], []
    for line, row in records:
        if len(row) != len(header):
            raise InputError(
                f"{len(row)} cells in the row, {len(header)} in the header",
                fix="expected one cell per column; quote cells with commas",
                source=text.name,
                line=line,
            )
        rows.append(row)
        lines.append(line)
    if not rows:
        raise InputError("no rows", fix="expected rows below the header", source=text.name)
    return Table(text.name, header, rows, lines)


def _records(text: SourceText) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line number and the cells of each record that is not blank.

    Lines that begin with # are comments only above the header; below it they may be rows.
    """
    reader = csv.reader(io.StringIO(text.body), strict=True)
    begin = 1
    above = True
    try:
        for row in reader:
            if len(row) > 1 or (row and row[0].strip()):
                above = above and row[0].startswith("#")
                if not above:
                    yield begin, row
            begin = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"unreadable row ({error})",
            fix="expected balanced quotes and at most 131,072 characters per cell",
            source=text.name,
            line=begin,
        ) from None


def _check_header(
    header: Sequence[str],
    required: Collection[str],
    optional: Collection[str],
    source: str,
    line: int,
) -> None:
    known = [*required, *optional]
    for separator, plural in ((";", "semicolons"), ("\t", "tabs")):
        if len(header) == 1 and separator in header[0]:
            raise InputError(
                f"columns separated by {plural}",
                fix="expected commas",
                source=source,
                line=line,
            )
    for column in header:
        if column not in known:
            raise unknown_name_error("column", column, known).within(source=source, line=line)
        if header.count(column) > 1:
            raise InputError(
                f"duplicate column {quote(column)}",
                fix="remove one",
                source=source,
                line=line,
            )
    missing = [column for column in required if column not in header]
    if missing:
        raise InputError(
            "missing column",
            fix=f"expected {', '.join(required)}",
            source=source,
            line=line,
            field=missing[0],
        )


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows as comma-separated text under their header."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()
