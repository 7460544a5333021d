"""Long tables of plain text: drawn as by rich, at a tenth of its time."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table


class LongTable(Table):
    """A table that draws its rows itself: rich measures and styles every single cell.

    Its columns have fixed widths, and its cells are texts without a style.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._texts: list[tuple[str, ...]] = []

    def add_row(self, *cells: RenderableType | None, **_: object) -> None:
        """Add a row of texts."""
        self._texts.append(tuple(str(cell) for cell in cells))

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return len(self._texts)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the head and the rows, then the lower border."""
        *head, last = Segment.split_lines(self._without_rows(console, options))
        for line in head:
            yield from line
            yield Segment.line()
        below_head = "".join(segment.text for segment in head[-1])
        for text in self._lines(console, options, below_head):
            yield Segment(text)
            yield Segment.line()
        yield from last
        yield Segment.line()

    def _without_rows(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for part in super().__rich_console__(console, options):
            if isinstance(part, Segment):
                yield part
            else:
                yield from console.render(part, options)

    def _lines(self, console: Console, options: ConsoleOptions, below_head: str) -> Iterator[str]:
        assert self.box is not None
        box = self.box.substitute(options, safe=console.safe_box)
        _, padding, _, _ = self.padding
        pad = " " * padding
        left, between = box.mid_left + pad, pad + box.mid_vertical + pad
        right = pad + box.mid_right
        # The line below the head has the widths that rich has chosen: less on a narrow terminal.
        runs = below_head.strip()[1:-1].split(box.head_row_cross)
        columns = [
            (len(run) - 2 * padding, column.justify == "right")
            for run, column in zip(runs, self.columns, strict=True)
        ]
        for row in self._texts:
            cells = [
                [cell]
                if len(cell) <= width and cell.isascii()
                else _folded(cell, width, console, options)
                for cell, (width, _) in zip(row, columns, strict=True)
            ]
            for line in zip_longest(*cells, fillvalue=""):
                texts = [
                    _aligned(text, width, to_right)
                    for text, (width, to_right) in zip(line, columns, strict=True)
                ]
                yield left + between.join(texts) + right


def _folded(cell: str, width: int, console: Console, options: ConsoleOptions) -> list[str]:
    """Return the lines of a cell that may not fit into its column."""
    if cell_len(cell) <= width:
        return [cell]
    narrow = options.update(width=width, height=None, overflow="fold")
    lines = console.render_lines(cell, narrow, pad=False)
    return ["".join(segment.text for segment in line) for line in lines]


def _aligned(text: str, width: int, to_right: bool) -> str:
    text = text.rstrip()
    if text.isascii():
        return text.rjust(width) if to_right else text.ljust(width)
    space = " " * (width - cell_len(text))
    return space + text if to_right else text + space
