"""Tables that fit the terminal: narrower columns, then narrower borders, then several parts."""

from collections.abc import Sequence
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from fairlead.cli.shared.long_table import LongTable

Cell = str | Text
_MAX_WORD = 12
"""longest word that a column does not break"""


def fitting_tables(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    width: int,
    figures: bool = True,
    long: int = 100,
) -> list[Table]:
    """Return one table that fits ``width`` without breaking short words; several where none does.

    The parts of a table repeat its first column. ``figures`` aligns the others to the right. Cells
    that rows lack at their end are empty. More than ``long`` rows of plain text are drawn faster.
    """
    texts = [[*columns], *([_plain(cell) for cell in row] for row in rows)]
    columns_of_text = [*zip_longest(*texts, fillvalue="")]
    least = [_longest_short_word(column) for column in columns_of_text]
    natural = [max(map(_line_width, column)) for column in columns_of_text]
    is_long = len(rows) > long and all(isinstance(cell, str) for row in rows for cell in row)
    tables: list[Table] = []
    for part, padding in _parts(least, width):
        room = width - _borders(len(part), padding)
        widths = _narrowed([natural[i] for i in part], [least[i] for i in part], room)
        table_class = LongTable if is_long else Table
        drawn = table_class(
            title=None if tables else title, title_justify="left", padding=(0, padding)
        )
        for i, cells in zip(part, widths, strict=True):
            justify: JustifyMethod = "right" if i and figures else "left"
            drawn.add_column(columns[i], justify=justify, width=cells, overflow="fold")
        for row in rows:
            drawn.add_row(*(row[i] if i < len(row) else "" for i in part))
        tables.append(drawn)
    return tables


def _plain(cell: Cell) -> str:
    return cell.plain if isinstance(cell, Text) else cell


def _line_width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _longest_short_word(column: Sequence[str]) -> int:
    lengths = (cell_len(word) for text in column for word in text.split())
    return max((length for length in lengths if length <= _MAX_WORD), default=1)


def _borders(columns: int, padding: int) -> int:
    return columns * (1 + 2 * padding) + 1


def _parts(least: Sequence[int], width: int) -> list[tuple[list[int], int]]:
    """Return the columns of each part, with the padding of its cells."""
    every = [*range(len(least))]
    for padding in (1, 0):
        if sum(least) + _borders(len(least), padding) <= width:
            return [(every, padding)]
    parts: list[list[int]] = []
    for column in every[1:]:
        last = [*parts[-1], column] if parts else [0, column]
        fits = sum(least[i] for i in last) + _borders(len(last), 1) <= width
        if parts and fits:
            parts[-1] = last
        else:
            parts.append([0, column])
    return [(part, 1) for part in parts or [every]]


def _narrowed(natural: list[int], least: list[int], room: int) -> list[int]:
    """Return widths within ``room``, the widest columns narrowed first, none below its least."""
    widths = [*natural]
    for _ in range(sum(widths) - room):
        at = max(range(len(widths)), key=lambda i: (widths[i] > least[i], widths[i]))
        widths[at] = max(widths[at] - 1, least[at])
    return widths
