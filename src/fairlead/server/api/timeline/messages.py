"""Messages of the REST API about the timeline: devices and shares of tenants over time."""

from pydantic import BaseModel


class TimelineDevice(BaseModel):
    """One row of the timeline."""

    node: str
    number: int
    """its number on the node"""
    accelerator: str


class TimelineJobs(BaseModel):
    """Jobs of a timeline; one entry of each list per job."""

    id: list[str]
    tenant: list[str]
    kept: list[bool]
    """whether the server still has the job"""
    device_s: list[float]
    """device-seconds in this time, on all devices"""
    preemptions: list[int]
    failures: list[int]


class TimelineRuns(BaseModel):
    """Columns of time in which one job held a device longest; one entry of each list per run."""

    device: list[int]
    """index in ``devices``"""
    first: list[int]
    """its first column"""
    end: list[int]
    """column after its last"""
    job: list[int]
    """index in ``jobs``; -2 for a job that the reader may not see"""


class TimelineMarks(BaseModel):
    """Marked ends of leases; at most one per device and column, the most severe."""

    device: list[int]
    column: list[int]
    kind: list[int]
    """0: preempted; 1: moved, that is preempted and continued on other devices; 2: failed;
    3: lost with its node"""
    job: list[int]


class TimelineOutages(BaseModel):
    """Times for which nodes were down, drained or removed; one entry of each list per outage."""

    node: list[str]
    begin: list[float]
    end: list[float]


class Timeline(BaseModel):
    """Devices × columns of time."""

    begin: float
    end: float
    columns: int
    now: float
    total_devices: int
    """devices of the cluster; ``devices`` are some of them"""
    devices: list[TimelineDevice]
    jobs: TimelineJobs
    runs: TimelineRuns
    marks: TimelineMarks
    outages: TimelineOutages
    """outages of the nodes of ``devices`` in this time"""


class TenantHistory(BaseModel):
    """Shares of one tenant by column of time; null where nothing is known."""

    tenant: str
    entitled: list[float | None]
    received: list[float | None]
    entitled_average: list[float | None]
    """at the end of the column; older shares count half with every half-life"""
    received_average: list[float | None]


class SharesHistory(BaseModel):
    """Entitled and received shares of tenants over time."""

    begin: float
    end: float
    half_life_s: float
    at: list[float]
    """end of each column"""
    tenants: list[TenantHistory]
