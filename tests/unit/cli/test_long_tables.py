"""Long tables: drawn faster than rich draws them, and the same to the last character."""

import io
import random

import pytest
from rich.console import Console

from fairlead.cli.shared.tables import fitting_tables

LETTERS = "ab c-déñ漢字_/.0123 "


def drawn(rows: list[list[str]], width: int, *, long: int, encoding: str, terminal: bool) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    console = Console(file=file, width=width, force_terminal=terminal, color_system="256")
    heads = [f"head {i}" for i in range(len(rows[0]))]
    console.print(
        *fitting_tables("t", heads, rows, width=width, figures=width % 20 == 0, long=long),
        sep="\n",
    )
    file.flush()
    assert isinstance(file.buffer, io.BytesIO)
    return file.buffer.getvalue().decode()


@pytest.mark.parametrize(("encoding", "terminal"), [("utf-8", True), ("ascii", False)])
def test_a_long_table_looks_like_a_short_one(encoding: str, terminal: bool) -> None:
    rng = random.Random(0)

    def cell() -> str:
        return "".join(rng.choices(LETTERS, k=rng.choice([0, 1, 3, 8, 20, 40])))

    for width in (30, 50, 80, 120):
        for columns in (1, 2, 4, 7):
            rows = [[cell() for _ in range(columns)] for _ in range(4)]
            short, long = (
                drawn(rows, width, long=limit, encoding=encoding, terminal=terminal)
                for limit in (10, 0)
            )
            assert long == short


def test_only_plain_text_is_drawn_fast() -> None:
    (table,) = fitting_tables("t", ["a", "b"], [["x", "1"]] * 200, width=80)
    assert type(table).__name__ == "LongTable"
    assert table.row_count == 200
