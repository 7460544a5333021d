"""Comma-separated rows under a header: checked names, line numbers, no ragged rows."""

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from fairlead.files.parsing.fields import quoted, unknown
from fairlead.files.parsing.text import Text
from fairlead.model.errors import InputError


@dataclass(frozen=True, slots=True)
class Table:
    """A table's column names and its rows, each with the line on which it begins."""

    source: str
    header: tuple[str, ...]
    rows: list[list[str]]
    lines: list[int]


def read_table(text: Text, *, required: Collection[str], optional: Collection[str] = ()) -> Table:
    """Return a table that has the required columns, no unknown ones and at least one row."""
    text.check_lines()
    records = _records(text)
    line, head = next(records, (1, []))
    header = tuple(cell.strip() for cell in head)
    _check_header(header, required, optional, text.name, line)
    rows, lines = [], []
    for line, row in records:
        if len(row) != len(header):
            raise InputError(
                f"the row has {len(row)} cells, the header {len(header)}",
                fix="give every row one cell a column, quoting cells that hold commas",
                source=text.name,
                line=line,
            )
        rows.append(row)
        lines.append(line)
    if not rows:
        raise InputError("it has a header but no rows", fix="add rows", source=text.name)
    return Table(text.name, header, rows, lines)


def _records(text: Text) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line number and the cells of each record, without the blank ones.

    Lines that begin with # are comments above the header only: below it they may be rows.
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
            f"the row cannot be read ({error})",
            fix="check its quotes; one cell holds at most 131,072 characters",
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
    for separator, said in ((";", "semicolons"), ("\t", "tabs")):
        if len(header) == 1 and separator in header[0]:
            raise InputError(
                f"its columns are separated by {said}",
                fix="separate them by commas",
                source=source,
                line=line,
            )
    for column in header:
        if column not in known:
            raise unknown("column", column, known).within(source=source, line=line)
        if header.count(column) > 1:
            raise InputError(
                f"column {quoted(column)} is there twice",
                fix="remove one",
                source=source,
                line=line,
            )
    missing = [column for column in required if column not in header]
    if missing:
        raise InputError(
            f"column {missing[0]!r} is missing",
            fix=f"the columns needed are {', '.join(required)}",
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
