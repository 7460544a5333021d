"""History of one job, as stored in one document: its metrics and its last leases."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fairlead.live.history.metric_points import MetricPoints, Point

MAX_LEASES = 100
"""leases of a job that are kept"""
MAX_POINTS = 1000
"""points kept per metric"""
_MAX_JOB_POINTS = 20_000
"""points kept per job: those with many metrics keep fewer of each"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """One ended lease of a job."""

    lease: int
    nodes: Mapping[str, int]
    """node → devices held there"""
    accelerators: Mapping[str, int]
    """accelerator → devices held"""
    started_at: float
    ended_at: float
    ending: str
    steps: float
    """steps made under it that later leases did not repeat"""
    lost_s: float = 0.0
    start_s: float | None = None
    """seconds from its launch to its first step; None if not reported"""
    end_s: float | None = None
    """seconds from its last step to its end; None if not reported"""
    began: str = ""
    """way to its device: start, resume of a parked process, or hand-over to a process that was
    started before; empty if unknown"""
    left: str = ""
    """way to give up its device: exit, or offload to host memory; empty if unknown"""
    switch: str = ""
    """reasons for which its processes, or those before them, did not stay in host memory"""
    exit_codes: tuple[int, ...] = ()

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> "LeaseRecord":
        """Return the record that was stored as JSON."""
        return cls(**{**saved, "exit_codes": tuple(saved.get("exit_codes", ()))})


@dataclass(slots=True)
class JobReports:
    """Reports of one job that are not stored yet."""

    leases: list[LeaseRecord] = field(default_factory=list)
    points: list[tuple[str, Point]] = field(default_factory=list)


class JobHistory:
    """Metrics and leases of one job."""

    def __init__(self) -> None:
        self.metrics: dict[str, MetricPoints] = {}
        self.leases: dict[int, LeaseRecord] = {}

    def add(self, reports: JobReports) -> None:
        """Add reports; those that it has already change nothing."""
        for name, point in reports.points:
            metric = self.metrics.setdefault(name, MetricPoints())
            metric.add(point, min(MAX_POINTS, _MAX_JOB_POINTS // len(self.metrics)))
        for record in reports.leases:
            # A replay of the event log does not know start-up costs and exit codes.
            self.leases.setdefault(record.lease, record)
        for lease in sorted(self.leases)[:-MAX_LEASES]:
            del self.leases[lease]

    def as_text(self) -> str:
        """Return the document."""
        metrics = {name: points.as_json() for name, points in self.metrics.items()}
        leases = [asdict(record) for _, record in sorted(self.leases.items())]
        return json.dumps({"metrics": metrics, "leases": leases})

    @classmethod
    def from_text(cls, text: str | None) -> "JobHistory":
        """Return the history in a document; an empty one if it is missing or damaged."""
        history = cls()
        if text is None:
            return history
        try:
            content = json.loads(text)
            metrics = {
                str(name): MetricPoints.from_json(saved)
                for name, saved in content["metrics"].items()
            }
            leases = [LeaseRecord.of(saved) for saved in content["leases"]]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return history
        history.metrics = metrics
        history.leases = {record.lease: record for record in leases}
        return history


def merged(text: str | None, reports: Iterable[JobReports]) -> JobHistory:
    """Return the history of a document with later reports."""
    history = JobHistory.from_text(text)
    for each in reports:
        history.add(each)
    return history


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseExit:
    """Facts about the end of a lease that are not in the event log."""

    ending: str
    start_s: float | None
    end_s: float | None
    began: str
    left: str
    switch: str
    exit_codes: tuple[int, ...]

    def added_to(self, record: LeaseRecord) -> LeaseRecord:
        """Return a record with these facts."""
        return replace(record, **asdict(self))
