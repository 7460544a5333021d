"""Speeds that a server believed during a run, from its event log."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.physical.record import Belief

from fairlead.client import Client


class BeliefReader:
    """Reads the speeds that a server believes; poll it often: saved states replace events."""

    def __init__(self, data: Path) -> None:
        self._url = f"file:{data / 'fairlead.db'}?mode=ro"
        self._seq = 0
        self._events: list[dict[str, Any]] = []

    def poll(self) -> None:
        """Read the events since the last call."""
        query = "SELECT seq, body FROM events WHERE seq > ? ORDER BY seq"
        with closing(sqlite3.connect(self._url, uri=True)) as database:
            for seq, body in database.execute(query, (self._seq,)):
                self._seq = seq
                event = json.loads(body)
                if event["is"] == "SpeedMeasured":
                    self._events.append(event)

    def beliefs(self, first_at: float) -> list[Belief]:
        """Return the believed speeds of single devices, with times since ``first_at``."""
        return [
            Belief(
                at_s=round(event["at"] - first_at, 3),
                workload=event["workload"],
                accelerator=event["accelerator"],
                steps_per_s=event["steps_per_s"],
            )
            for event in self._events
        ]


def plan_s(client: Client) -> float:
    """Return the median time from the due time of a plan until it is persisted."""
    _, metrics = client.text("GET", "/metrics")
    median = re.search(rb'^fairlead_round_seconds\{quantile="0.5"\} (\S+)$', metrics, re.MULTILINE)
    assert median is not None
    return float(median[1])
