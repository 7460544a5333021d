"""Comma-separated values on standard output."""

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence


def print_csv(names: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Write a header and rows; no text becomes a formula of a spreadsheet."""
    writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _without_formula(row[name]) for name in names})


def _without_formula(value: object) -> object:
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if formula else value
