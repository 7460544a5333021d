"""Messages of the REST API."""

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from fairlead.live.leases import renewal as live
from fairlead.model.submission import bounds
from fairlead.model.submission.fields import JsonNumber
from fairlead.model.submission.new_job import Name, Priority, Seconds, Weight
from fairlead.model.tenants.tenant import Tenant
from fairlead.server.access.scopes import SCOPES, Scope

_MAX_OVERLAP_S = 30 * 86400.0


def _require_quota(devices: float) -> float:
    if 0 < devices < bounds.MIN_QUOTA:
        raise ValueError(f"expected 0, or at least {bounds.MIN_QUOTA:g} devices")
    return devices


Quota = Annotated[
    float, Field(ge=0, le=bounds.MAX_QUOTA), AfterValidator(_require_quota), JsonNumber()
]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Renewal(_Message):
    """Report of one member of a gang."""

    rank: Annotated[int, Field(ge=0, lt=100_000), JsonNumber()]
    started: Annotated[int, Field(ge=0, le=10**15), JsonNumber()]
    steps: Annotated[float, Field(ge=0, le=1e15), JsonNumber()]
    saved_steps: Annotated[float, Field(ge=0, le=1e15), JsonNumber()] = 0
    steps_per_s: Annotated[float, Field(ge=0, le=1e15), JsonNumber()] = 0
    metrics: Annotated[dict[Name, float], Field(max_length=1000)] = {}
    """last values; true counts as 1: a renewal must not fail for what a program reports"""
    leaving: bool = False
    first_step_s: Annotated[float, Field(ge=0, le=1e12), JsonNumber()] | None = None
    """seconds since its first step under this lease began"""
    last_step_s: Annotated[float, Field(ge=0, le=1e12), JsonNumber()] | None = None
    """seconds since its last step ended"""

    def to_live(self) -> live.Renewal:
        """Return the renewal as the live driver takes it."""
        return live.Renewal(
            rank=self.rank,
            started=self.started,
            steps=self.steps,
            steps_per_s=self.steps_per_s,
            metrics=self.metrics,
            leaving=self.leaving,
            first_step_s=self.first_step_s,
            last_step_s=self.last_step_s,
        )


class Renewed(_Message):
    """Answer to a renewal: remaining time of the lease, and whether to leave."""

    valid_s: float
    again_s: float
    leave: bool
    leave_after: int | None
    emulated_steps_per_s: float | None = None
    """speed of an emulated accelerator, when it has changed"""


class TenantView(_Message):
    """A tenant."""

    id: Name
    weight: Weight = 1.0
    parent: Name | None = None
    inner: Literal["fairness", "fifo"] = "fairness"
    priority: Priority = 0
    guarantee: dict[Name, Quota] = {}
    guarantee_in: Literal["devices", "speed"] = "devices"
    limit: dict[Name, Quota] = {}
    max_priority: Priority | None = None
    """highest priority that its own tokens may give a job"""
    max_weight: Weight | None = None
    """highest weight that its own tokens may give a job"""
    max_jobs: Annotated[int, Field(ge=1, le=10**9), JsonNumber()] | None = None
    """maximum number of its jobs that have not ended, for its own tokens"""

    @classmethod
    def of(cls, tenant: Tenant) -> "TenantView":
        """Return the view of a tenant; numbers that an earlier version stored are clamped.

        Quotas below the least number of devices count as 0.
        """
        values = {item.name: getattr(tenant, item.name) for item in fields(Tenant)}
        for quota in ("guarantee", "limit"):
            values[quota] = {
                name: 0.0 if devices < bounds.MIN_QUOTA else min(devices, bounds.MAX_QUOTA)
                for name, devices in values[quota].items()
            }
        values["weight"] = bounds.clamped_weight(tenant.weight)
        return cls.model_construct(**values)

    def to_tenant(self) -> Tenant:
        """Return the tenant as the scheduler takes it."""
        return Tenant(
            id=self.id,
            weight=self.weight,
            parent=self.parent,
            inner=self.inner,
            priority=self.priority,
            guarantee=self.guarantee,
            guarantee_in=self.guarantee_in,
            limit=self.limit,
            max_priority=self.max_priority,
            max_weight=self.max_weight,
            max_jobs=self.max_jobs,
        )


class NewToken(_Message):
    """A token to make."""

    name: Name
    role: Literal["admin", "tenant", "viewer"] = "tenant"
    tenant: Name | None = None
    sees: Annotated[list[Name], Field(max_length=1000)] = []
    lasts_s: Seconds | None = None
    scopes: Annotated[list[Scope], Field(max_length=len(SCOPES))] = []
    """parts of the API that it may use; none: all that its role permits"""


class TokenRotation(_Message):
    """Rotation of a token."""

    overlap_s: Annotated[float, Field(ge=0, le=_MAX_OVERLAP_S), JsonNumber()] = 0.0
    """seconds for which the old secret stays valid"""


class TokenView(_Message):
    """Public part of a token; ``token`` is set in answers to its creation and rotation only."""

    id: str
    name: str
    role: str
    tenant: str | None
    sees: list[str]
    created_at: float
    expires_at: float | None
    scopes: list[str] = []
    last_used_at: float | None = None
    """exact to a minute"""
    token: str | None = None


class AuditEntry(_Message):
    """An entry of the audit trail."""

    seq: int
    at: float
    who: str  # lang: ok
    """name of the author"""
    role: str
    actor: str
    """id of the author's token, or oidc: and the subject"""
    action: str
    subject: str
    detail: str
    changes: dict[str, Any]
    """setting → its old and new value"""
    hash: str
    """SHA-256 of the previous entry's hash and this entry"""


class AuditVerification(_Message):
    """Result of checking the hash chain of the audit trail."""

    intact: bool
    entries: int
    newest_hash: str
    problem: str | None


class OidcView(_Message):
    """The OpenID Connect provider at which users log in."""

    issuer: str
    client_id: str


class NewSecret(BaseModel):
    """Value of a secret to store."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    value: Annotated[str, Field(min_length=1, max_length=32_768, repr=False)]
    tenant: Name | None = None


class SecretView(_Message):
    """A stored secret; no message holds its value, except the answer to its job's lease."""

    name: str
    tenant: str
    created_at: float
    changed_at: float
    readable: bool
    """false if it was stored with a key that the server no longer has"""


class LeaseSecrets(_Message):
    """Environment variables of a lease's processes, with the values of the job's secrets."""

    values: dict[str, str]


class DeviceHealthView(_Message):
    """Condition of a device, as its driver reports it; null where it does not."""

    number: int
    """number on the node, from 0"""
    accelerator: str
    fault: str | None
    """reason for which the device was drained, until an operator returns the node"""
    memory_used_gib: float | None = None
    memory_gib: float | None = None
    utilisation: float | None = None
    """fraction of the last second or so in which the device computed"""
    temperature_c: float | None = None
    uncorrectable_ecc: int | None = None
    """uncorrectable memory errors since the device was last reset"""
    throttled: list[str] = []
    """reasons for which its clocks are reduced now"""


class NodeView(_Message):
    """A node and its devices."""

    id: str
    rack: str
    up: bool
    cordoned: bool
    drained: bool
    """drained by an operator, until an operator returns it"""
    devices: dict[str, int]
    busy: int
    """devices held by jobs of this server"""
    taken: int
    """devices held by users outside Fairlead, or missing"""
    health: list[DeviceHealthView]
    """devices with readings of their driver or with a fault"""
    unread: str = ""
    """reason why the node's devices are never read; empty if they are, or could be"""


class MigLayout(_Message):
    """A MIG layout of a GPU."""

    gpu: Annotated[int, Field(ge=0, le=1023), JsonNumber()]
    """index of the GPU in ``nvidia-smi``"""
    profiles: Annotated[list[Annotated[str, Field(max_length=32)]], Field(max_length=64)]
    """MIG devices, such as 3g.71gb; none: the whole GPU"""


DeviceState = Literal["free", "held", "taken"]


class DeviceView(_Message):
    """A device and its use."""

    accelerator: str
    state: DeviceState
    """held by jobs of this server, or taken by users outside Fairlead"""
    tenant: str | None
    """tenant of the jobs on it; null if it is free, or if the reader may not see them"""
    jobs: list[str]
    """jobs on it that the reader may see; several if jobs share it"""


class NodeDevices(_Message):
    """The devices of a node, in their order."""

    node: str
    devices: list[DeviceView]


class RemovedNode(_Message):
    """A removed node."""

    id: str
    stranded: list[str]
    """jobs that could run on this node only: they wait for a node with such devices"""


class TenantExplanation(_Message):
    """The devices that a tenant holds now, and the reasons for their number."""

    tenant: str
    entitled: float
    """fraction of the cluster among the tenants with active jobs"""
    received: float
    """fraction of the cluster that it holds now"""
    devices: dict[str, int]
    """accelerator → devices that it and the tenants inside it hold"""
    running: int
    queued: int
    suspended: int
    limits: list[str]
    """conditions that keep it from more devices"""
    text: list[str]
    """the explanation in paragraphs"""


class ShareView(_Message):
    """Entitled and received shares of a tenant, as fractions of all devices."""

    tenant: str
    weight: float
    entitled: float
    received: float
    device_hours: float
    jobs: int
    """jobs that run or wait for devices"""
    running: int
    """those of them that hold devices"""
    devices: dict[str, int]
    """accelerator → devices that its jobs hold now"""
    speed: float
    """speed of its running jobs, in devices of average speed of the cluster for these jobs"""


class AboutView(_Message):
    """Version, scheduling configuration and cluster of the server."""

    version: str
    policy: str
    mechanism: str
    divides_among_tenants: bool
    """the policy divides among tenants by their weights"""
    round_s: float | None
    cluster: dict[str, int]
    now: float
    start_s: float | None = None
    """recent average time from the start of a lease to its first step"""
    end_s: float | None = None
    """recent average time from the last step of a lease to its end"""
    usd_per_hour: dict[str, float] = {}
    """accelerator → price of one device for an hour, where known"""


class Problem(BaseModel):
    """Reason for which a request was refused."""

    code: str
    message: str
    field: str | None = None


class Trouble(BaseModel):
    """Body of every error response."""

    error: Problem


AnyJson = dict[str, Any]


TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
}
"""OpenAPI description of a response in plain text"""
