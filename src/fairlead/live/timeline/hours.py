"""Documents of the timeline: one per hour, with its intervals, outages and shares."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.live.timeline import outages
from fairlead.live.timeline.intervals import Intervals
from fairlead.live.timeline.outages import Outage
from fairlead.live.timeline.shares import ShareColumns

KIND = "timeline"
HOUR_S = 3600.0
KEPT_HOURS = 35 * 24
"""hours that are kept"""
NEWEST = "newest"
"""id of the document that names the newest hour; no hour sorts after it"""


def hour_of(at: float) -> int:
    """Return the number of the hour since 1970."""
    return math.floor(at / HOUR_S)


def key(hour: int) -> str:
    """Return the id of an hour's document; ids sort like hours."""
    return f"{max(hour, 0):08}"


@dataclass(frozen=True, slots=True, eq=False)
class Hour:
    """Intervals, shares and outages of one hour."""

    intervals: Intervals
    """leases that held devices in it, open ones until its end"""
    shares: ShareColumns
    outages: Sequence[Outage] = ()
    """times for which nodes were down in it, those that last until its end"""

    @classmethod
    def empty(cls) -> "Hour":
        """Return an hour of which nothing is known."""
        return cls(Intervals.of(()), ShareColumns.of(()))

    def as_text(self) -> str:
        """Return the document."""
        content = {
            "leases": self.intervals.as_json(),
            "shares": self.shares.as_json(),
            "outages": outages.as_json(self.outages),
        }
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str | None) -> "Hour":
        """Return the hour of a document; an empty one if it is missing or damaged."""
        if text is None:
            return cls.empty()
        try:
            content = json.loads(text)
            intervals = Intervals.from_json(content["leases"])
            down = content.get("outages")  # an earlier version stored none
            return cls(
                intervals,
                ShareColumns.from_json(content["shares"]),
                () if down is None else outages.from_json(down),
            )
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            return cls.empty()
