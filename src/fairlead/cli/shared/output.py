"""Text output of commands: results on stdout, messages on stderr."""

import time

from rich.console import Console
from rich.table import Table

messages = Console(stderr=True, markup=False, emoji=False)
results = Console(markup=False, emoji=False)
"""without markup, since names may hold square brackets and colons"""


def printable(text: str) -> str:
    """Return text with control characters escaped, so that terminals do not obey them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def pluralise(number: int, noun: str) -> str:
    """Return ``1 job``, ``2 jobs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def table(title: str, columns: list[str], rows: list[list[str]], *, figures: bool = True) -> None:
    """Print a table; ``figures`` aligns all columns but the first to the right."""
    drawn = Table(title=title, title_justify="left")
    for i, name in enumerate(columns):
        drawn.add_column(name, justify="right" if i and figures else "left")
    for row in rows:
        drawn.add_row(*map(printable, row))
    results.print(drawn)


def hours(seconds: float | None) -> str:
    """Return a duration in hours with two decimals."""
    return "–" if seconds is None else f"{seconds / 3600:.2f} h"


def local_time(at: float) -> str:
    """Return a time of this machine's zone, with the zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at))


def counts_text(counts: dict[str, float]) -> str:
    """Return numbers of devices by accelerator, such as ``v100=2, k80=4``."""
    return ", ".join(f"{name}={count:g}" for name, count in counts.items())
