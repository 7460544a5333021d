"""Text output of commands: results on stdout, messages on stderr."""

import time
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table

messages = Console(stderr=True, markup=False, emoji=False)
results = Console(markup=False, emoji=False)
"""without markup, since names may hold square brackets and colons"""

_MAX_WORD = 12
"""longest word that a column does not break"""


def printable(text: str) -> str:
    """Return text with control characters escaped, so that terminals do not obey them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def pluralise(number: int, noun: str) -> str:
    """Return ``1 job``, ``2 jobs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def table(title: str, columns: list[str], rows: list[list[str]], *, figures: bool = True) -> None:
    """Print a table; ``figures`` aligns all columns but the first to the right."""
    drawn = Table(title=title, title_justify="left")
    shown = [[*map(printable, row)] for row in rows]
    for i, (name, width) in enumerate(zip(columns, _widths([columns, *shown]), strict=True)):
        justify: JustifyMethod = "right" if i and figures else "left"
        drawn.add_column(name, justify=justify, width=width, overflow="fold")
    for row in shown:
        drawn.add_row(*row)
    results.print(drawn)


def _widths(rows: list[list[str]]) -> list[int]:
    """Return widths of columns that fit the terminal, if that breaks no short word."""
    columns = [*zip_longest(*rows, fillvalue="")]
    widths = [max(map(cell_len, column)) for column in columns]
    words = [[cell_len(word) for cell in column for word in cell.split()] for column in columns]
    least = [max((n for n in lengths if n <= _MAX_WORD), default=1) for lengths in words]
    excess = sum(widths) + 3 * len(columns) + 1 - results.width
    for _ in range(excess):
        at = max(range(len(columns)), key=lambda j: (widths[j] > least[j], widths[j]))
        widths[at] = max(widths[at] - 1, least[at])
    return widths


def hours(seconds: float | None) -> str:
    """Return a duration in hours with two decimals."""
    return "–" if seconds is None else f"{seconds / 3600:.2f} h"


def duration(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else hours(seconds)


def local_time(at: float) -> str:
    """Return a time of this machine's zone, with the zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at))


def counts_text(counts: dict[str, float]) -> str:
    """Return numbers of devices by accelerator, such as ``v100=2, k80=4``."""
    return ", ".join(f"{name}={count:g}" for name, count in counts.items())
