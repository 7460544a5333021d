"""What is said over the wire."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+$")]
Label = Annotated[str, Field(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*$")]
Seconds = Annotated[float, Field(gt=0, lt=1e12)]
State = Literal["queued", "running", "suspended", "finished", "failed", "cancelled"]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewJob(_Message):
    """A job to submit."""

    command: Annotated[list[Annotated[str, Field(max_length=4096)]], Field(min_length=1)]
    name: Label = ""
    tenant: Name | None = None
    workload: Label = ""
    gang: Annotated[int, Field(ge=1, le=100_000)] = 1
    min_gang: Annotated[int, Field(ge=1, le=100_000)] | None = None
    max_gang: Annotated[int, Field(ge=1, le=100_000)] | None = None
    multijob: Name | None = None
    steps: Annotated[int, Field(ge=1, le=10**15)] | None = None
    weight: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    priority: Annotated[int, Field(ge=-(10**6), le=10**6)] = 0
    deadline_s: Seconds | None = None
    accelerators: list[Name] | None = None
    """as v100, or k80=2 where it needs another number of devices than its gang"""
    memory_gib: Seconds | None = None
    directory: Annotated[str, Field(max_length=4096)] = ""
    environment: dict[Name, Annotated[str, Field(max_length=32_768)]] = {}
    retries: Annotated[int, Field(ge=0, le=1000)] = 3
    grace_s: Seconds = 30.0
    host_memory_gib: Seconds | None = None
    time_limit_s: Seconds | None = None
    progress_pattern: Annotated[str, Field(max_length=1000)] | None = None


class JobView(_Message):
    """A job as it stands."""

    id: str
    name: str
    tenant: str
    state: State
    workload: str
    gang: int
    weight: float
    priority: int
    multijob: str | None
    steps_done: float
    total_steps: int | None
    accelerator: str | None
    devices: int
    """that it holds now"""
    accelerators_used: list[str]
    leases: int
    preemptions: int
    failures: int
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    steps_per_s: float | None
    metrics: dict[str, float | None]
    """as the job told them; null for one that is not a finite number"""
    message: str
    command: list[str]


class JobChange(_Message):
    """What may be changed of a job."""

    priority: Annotated[int, Field(ge=-(10**6), le=10**6)] | None = None
    weight: Annotated[float, Field(gt=0, le=1e9)] | None = None
    deadline_s: Seconds | None = None


class Renewal(_Message):
    """What a member of a gang tells of itself."""

    rank: Annotated[int, Field(ge=0, lt=100_000)]
    started: Annotated[int, Field(ge=0, le=10**15)]
    steps: Annotated[float, Field(ge=0, le=1e15)]
    saved_steps: Annotated[float, Field(ge=0, le=1e15)] = 0
    steps_per_s: Annotated[float, Field(ge=0, le=1e15)] = 0
    metrics: Annotated[dict[Name, float], Field(max_length=1000)] = {}
    leaving: bool = False
    first_step_s: Annotated[float, Field(ge=0, le=1e12)] | None = None
    """seconds since its first step under this lease began"""
    last_step_s: Annotated[float, Field(ge=0, le=1e12)] | None = None
    """seconds since its last step ended"""


class Renewed(_Message):
    """How long a member may go on, and whether it is to leave."""

    valid_s: float
    again_s: float
    leave: bool
    leave_after: int | None
    emulated_steps_per_s: float | None = None
    """how fast an emulated accelerator is, when that has changed"""


class TenantView(_Message):
    """A tenant."""

    id: Name
    weight: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    parent: Name | None = None
    inner: Literal["fairness", "fifo"] = "fairness"
    priority: Annotated[int, Field(ge=-(10**6), le=10**6)] = 0
    guarantee: dict[Name, Annotated[float, Field(ge=0, le=1e6)]] = {}
    guarantee_in: Literal["devices", "speed"] = "devices"
    limit: dict[Name, Annotated[float, Field(ge=0, le=1e6)]] = {}


class NewToken(_Message):
    """A token to make."""

    name: Name
    role: Literal["admin", "tenant", "viewer"] = "tenant"
    tenant: Name | None = None
    sees: Annotated[list[Name], Field(max_length=1000)] = []
    lasts_s: Seconds | None = None


class TokenView(_Message):
    """What is shown of a token; ``token`` only when it is made."""

    id: str
    name: str
    role: str
    tenant: str | None
    sees: list[str]
    created_at: float
    expires_at: float | None
    token: str | None = None


class NodeView(_Message):
    """A node and its devices."""

    id: str
    rack: str
    up: bool
    cordoned: bool
    drained: bool
    """by an operator, who alone takes it back"""
    devices: dict[str, int]
    busy: int
    """devices that our jobs hold"""
    taken: int
    """devices that others hold"""


class RemovedNode(_Message):
    """A node that is gone for good."""

    id: str
    stranded: list[str]
    """jobs that could run there only: they wait until there are such devices again"""


class ShareView(_Message):
    """What a tenant is entitled to and has, as parts of all devices."""

    tenant: str
    weight: float
    entitled: float
    received: float
    device_hours: float
    jobs: int


class AboutView(_Message):
    """The server and how it was started."""

    version: str
    policy: str
    mechanism: str
    divides_among_tenants: bool
    """whether tenants' weights count under this policy"""
    round_s: float | None
    cluster: dict[str, int]
    now: float
    start_s: float | None = None
    """from the start of a lease to its first step, on average of late"""
    end_s: float | None = None
    """from the last step of a lease to its end, on average of late"""


class Problem(BaseModel):
    """Why a request was refused."""

    code: str
    message: str
    field: str | None = None


class Trouble(BaseModel):
    """The body of every answer that is not a success."""

    error: Problem


AnyJson = dict[str, Any]


TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
}
"""how OpenAPI is told of an answer in plain text"""
