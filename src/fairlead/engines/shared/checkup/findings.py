"""Findings of a checkup."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "wrong"]
MAX_CLOCK_SKEW_S = 2.0
"""tolerated difference between two clocks"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: its subject, level and text, and the fix if there is a problem."""

    what: str
    level: Level
    found: str  # lang: ok
    fix: str = ""
