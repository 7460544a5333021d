"""Rows of a log, cell by cell, with errors that know their line and column."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TypeVar

from fairlead.files.parsing.fields import number, quoted
from fairlead.files.parsing.table import Table
from fairlead.model.errors import InputError

T = TypeVar("T")
N = TypeVar("N", int, float)


class Cells:
    """One row's cells by column."""

    __slots__ = ("_cells",)

    def __init__(self, cells: dict[str, str]) -> None:
        self._cells = cells

    def read(self, column: str, reader: Callable[[object], T]) -> T:
        """Return what the reader makes of a cell; its error names the column."""
        try:
            return reader(self._cells[column])
        except InputError as error:
            raise error.within(field=column) from None

    def text(self, column: str) -> str:
        """Return a cell trimmed, empty when there is no such column."""
        return self._cells.get(column, "").strip()


def rows_of(table: Table, read: Callable[[Cells], T]) -> Iterator[tuple[int, T]]:
    """Yield the line of each row and what ``read`` makes of it."""
    for line, row in zip(table.lines, table.rows, strict=True):
        try:
            yield line, read(Cells(dict(zip(table.header, row, strict=True))))
        except InputError as error:
            raise error.within(source=table.source, line=line) from None


def time_s(value: object) -> float:
    """Return a time in seconds, 0 or more."""
    return not_negative(number)(value)


def date_time_s(value: object) -> float:
    """Return a local date and time in seconds; only differences mean something."""
    try:
        return datetime.fromisoformat(str(value).strip()).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        raise InputError(
            f"{quoted(value)} is not a time", fix="give 2026-01-31T10:00:00"
        ) from None


def not_negative(reader: Callable[[object], N]) -> Callable[[object], N]:
    """Return a reader that also refuses what is below 0."""

    def read(value: object) -> N:
        found = reader(value)
        if found < 0:
            raise InputError(f"{quoted(value)} is negative", fix="give 0 or more")
        return found

    return read


def positive(reader: Callable[[object], N]) -> Callable[[object], N]:
    """Return a reader that also refuses what is not above 0."""

    def read(value: object) -> N:
        found = reader(value)
        if found <= 0:
            raise InputError(f"{quoted(value)} is not above 0", fix="give more than 0")
        return found

    return read
