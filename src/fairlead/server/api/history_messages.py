"""Messages of the REST API about the history of jobs and about usage."""

from pydantic import BaseModel


class MetricPoint(BaseModel):
    """One reported value of a metric."""

    at: float
    steps: float
    """steps that the job had made"""
    value: float


class JobMetrics(BaseModel):
    """Reported metrics of a job: the last values, and at most 1,000 points of each over time."""

    last: dict[str, float | None]
    history: dict[str, list[MetricPoint]]
    """values that are not finite are left out"""


class LeaseView(BaseModel):
    """One ended lease of a job."""

    lease: int
    nodes: dict[str, int]
    """node → devices held there"""
    accelerators: dict[str, int]
    started_at: float
    ended_at: float
    ending: str
    """finished, left, failed, lost or refused"""
    steps: float
    """steps made under it that no later lease had to repeat"""
    start_s: float | None
    """seconds from its launch to the first step; null if the job does not report steps"""
    end_s: float | None
    """seconds from the last step to its end; null if the job does not report steps"""
    began: str
    """start of a process, resume of a parked one, or hand-over to one that was started before;
    empty if unknown"""
    left: str
    """exit of the process, or offload: the process stayed in host memory; empty if unknown"""
    switch: str
    """reasons for which its processes, or those before them, did not stay, as in the job's log"""
    lost_s: float
    """seconds whose steps were in no checkpoint"""
    exit_codes: list[int]


class JobLeases(BaseModel):
    """Leases of a job: totals of all of them, and the last 100 that have ended."""

    leases: int
    """leases so far, an open one included"""
    preemptions: int
    failures: int
    lost_s: float
    device_hours: float
    ended: list[LeaseView]
    """oldest first"""


class UsageView(BaseModel):
    """Device hours of a tenant on one accelerator on one day."""

    day: str
    """date in UTC, such as 2026-11-16"""
    tenant: str
    accelerator: str
    device_hours: float
    usd: float | None
    """device hours times the price of the accelerator; null if that is unknown"""
