"""What a check-up finds."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "wrong"]
MAX_CLOCK_SKEW_S = 2.0
"""by which clocks may differ"""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it stands, and what to do if it is not well."""

    what: str
    level: Level
    found: str
    fix: str = ""
