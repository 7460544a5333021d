"""Ranges of the figures that benchmarks measure, from ranges.toml."""

import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path

Ranges = Mapping[str, Mapping[str, float]]


def report(
    table: str, figures: Mapping[str, float], *, as_json: bool = False, applies: bool = True
) -> int:
    """Print figures with their ranges; return the exit status: 1 if one is outside its range.

    ``applies``: whether ranges count, for instance because the machine is not too busy.
    """
    broken, ranges = outside(table, figures) if applies else [], _ranges(table)
    if as_json:
        print(json.dumps(dict(figures)))
    else:
        for name, value in figures.items():
            verdict = "  BROKEN" if name in broken else ""
            print(f"{name:60} {value:10.3f}   {ranges.get(name, '')}{verdict}")
    return 1 if broken else 0


def outside(table: str, figures: Mapping[str, float]) -> list[str]:
    """Return the names of the figures that are outside their ranges."""
    ranges = _ranges(table)
    limits = {name: ranges.get(name, {}) for name in figures}
    return [
        name
        for name, value in figures.items()
        if value > limits[name].get("most", math.inf)
        or value < limits[name].get("least", -math.inf)
    ]


def _ranges(table: str) -> Ranges:
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    ranges: Ranges = tomllib.loads(text)[table]
    return ranges
