"""Records of all leases of a run, reconstructed from its events, live and simulated alike.

Both runs use the same core, so the same events describe the placement of each lease.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.core import Scheduler
from fairlead.model.commands import Launch, Preempt
from fairlead.model.events import Event, LeasesEnded

_COLUMNS = (
    "side", "job", "lease", "devices", "asked", "first_step", "told", "last_step", "left",
    "steps", "outcome",
)  # fmt: skip


@dataclass(slots=True)
class LeaseRecord:
    """One lease, from the order to launch it to the report of its end."""

    job: str
    devices: tuple[int, ...]
    asked_at: float
    saved_before: float
    """steps of its job when the lease began"""
    preempted_at: float | None = None
    """time of its preemption; None if it ended by itself"""
    left_at: float | None = None
    steps: float = 0.0
    outcome: str = ""


def lease_records(events: Iterable[Event], core: Scheduler[Any]) -> dict[int, LeaseRecord]:
    """Return the leases that a new core opens when it handles these events."""
    records: dict[int, LeaseRecord] = {}
    for event in events:
        for command in core.handle(event):
            if isinstance(command, Launch):
                for lease, on in zip(command.lease.tolist(), command.on, strict=True):
                    saved = float(core.jobs.saved_steps[on.job])
                    job = core.jobs.ids[on.job]
                    records[lease] = LeaseRecord(job, tuple(on.devices), event.at, saved)
            elif isinstance(command, Preempt):
                for lease in command.lease.tolist():
                    records[lease].preempted_at = event.at
        if isinstance(event, LeasesEnded):
            for lease, steps in zip(event.lease.tolist(), event.steps.tolist(), strict=True):
                record = records[lease]
                record.left_at, record.outcome = event.at, event.outcome
                record.steps = steps - record.saved_before
    return records


def write_records(
    path: Path,
    sides: Mapping[str, tuple[float, Mapping[int, LeaseRecord]]],
    steps_at: Mapping[int, tuple[float, float]],
) -> None:
    """Write the leases of each side, with times in seconds since that side's start.

    ``steps_at`` holds the times of the first and last steps of live leases.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(_COLUMNS)
        for side, (zero, leases) in sides.items():
            for lease, record in sorted(leases.items(), key=lambda item: item[1].asked_at):
                first, last = steps_at.get(lease, (None, None)) if side == "live" else (None, None)
                at = (record.asked_at, first, record.preempted_at, last, record.left_at)
                times = ["" if when is None else f"{when - zero:.2f}" for when in at]
                devices = " ".join(map(str, record.devices))
                rows.writerow(
                    [side, record.job, lease, devices, *times, f"{record.steps:g}", record.outcome]
                )
