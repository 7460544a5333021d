"""How commands speak to people: results on stdout, everything else on stderr."""

from rich.console import Console
from rich.table import Table

messages = Console(stderr=True, markup=False, emoji=False)
results = Console(markup=False, emoji=False)
"""names may hold square brackets and colons, which are no markup"""


def printable(text: str) -> str:
    """Return text whose control characters are written out, so that no terminal obeys them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def counted(number: int, what: str) -> str:
    """Return ``1 job``, ``2 jobs``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def table(title: str, columns: list[str], rows: list[list[str]], *, figures: bool = True) -> None:
    """Print a table; figures stand to the right, words and the first column to the left."""
    drawn = Table(title=title, title_justify="left")
    for i, name in enumerate(columns):
        drawn.add_column(name, justify="right" if i and figures else "left")
    for row in rows:
        drawn.add_row(*map(printable, row))
    results.print(drawn)


def hours(seconds: float | None) -> str:
    """Return a duration in hours, as people compare them."""
    return "–" if seconds is None else f"{seconds / 3600:.2f} h"
