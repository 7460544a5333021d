"""Rows of a log, read cell by cell; errors name the line and column."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TypeVar

from fairlead.files.parsing.fields import number, quote
from fairlead.files.parsing.table import Table
from fairlead.model.errors import InputError

T = TypeVar("T")
N = TypeVar("N", int, float)


class RowCells:
    """One row's cells by column."""

    __slots__ = ("_cells",)

    def __init__(self, cells: dict[str, str]) -> None:
        self._cells = cells

    def read(self, column: str, reader: Callable[[object], T]) -> T:
        """Return the value that the reader makes of a cell; errors name the column."""
        try:
            return reader(self._cells[column])
        except InputError as error:
            raise error.within(field=column) from None

    def text(self, column: str) -> str:
        """Return a cell without surrounding blanks; empty if there is no such column."""
        return self._cells.get(column, "").strip()


def parse_rows(table: Table, read: Callable[[RowCells], T]) -> Iterator[tuple[int, T]]:
    """Yield each row's line and the value that ``read`` makes of its cells."""
    for line, row in zip(table.lines, table.rows, strict=True):
        try:
            yield line, read(RowCells(dict(zip(table.header, row, strict=True))))
        except InputError as error:
            raise error.within(source=table.source, line=line) from None


def time_s(value: object) -> float:
    """Return a time in seconds, 0 or more."""
    return not_negative(number)(value)


def date_time_s(value: object) -> float:
    """Return a local date and time in seconds; only differences are meaningful."""
    try:
        return datetime.fromisoformat(str(value).strip()).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        raise InputError(
            f"not a time: {quote(value)}", fix="expected one such as 2026-01-31T10:00:00"
        ) from None


def not_negative(reader: Callable[[object], N]) -> Callable[[object], N]:
    """Return a reader that also refuses numbers below 0."""

    def read(value: object) -> N:
        result = reader(value)
        if result < 0:
            raise InputError(f"negative: {quote(value)}", fix="expected 0 or more")
        return result

    return read
