"""Text output of commands: results on stdout, messages on stderr."""

import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.cli.shared.tables import Cell, fitting_tables

messages = Console(stderr=True, markup=False, emoji=False)
results = Console(markup=False, emoji=False)
"""without markup, since names may hold square brackets and colons"""


def printable(text: str) -> str:
    """Return text with control characters escaped, so that terminals do not obey them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def pluralise(number: int, noun: str) -> str:
    """Return ``1 job``, ``2 jobs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def table(
    title: str, columns: list[str], rows: Sequence[Sequence[Cell]], *, figures: bool = True
) -> None:
    """Print a table; ``figures`` aligns all columns but the first to the right."""
    results.print(*parts_of_table(title, columns, rows, figures=figures), sep="\n")


def parts_of_table(
    title: str, columns: list[str], rows: Sequence[Sequence[Cell]], *, figures: bool = True
) -> list[Table]:
    """Return a table that fits the terminal, if need be in parts; control characters escaped."""
    shown = [[cell if isinstance(cell, Text) else printable(cell) for cell in row] for row in rows]
    heads = [printable(head) for head in columns]
    return fitting_tables(title, heads, shown, width=results.width, figures=figures)


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
