"""Messages of the REST API about consequences, audits and trades of policies."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from fairlead.model.submission.fields import JsonNumber

_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Quota = Annotated[
    dict[_Name, Annotated[float, Field(ge=0, le=1e6), JsonNumber()]], Field(max_length=100)
]


class ProposedTenant(BaseModel):
    """Another weight or quota of a tenant; fields left out keep their values."""

    model_config = ConfigDict(extra="forbid")

    id: _Name
    weight: Annotated[float, Field(gt=0, le=1e9), JsonNumber()] | None = None
    guarantee: _Quota | None = None
    """accelerator → devices it has whenever it can use them"""
    limit: _Quota | None = None
    """accelerator → maximum of devices it holds at a time"""


class WhatIf(BaseModel):
    """Changes to try on a copy of the present state; fields left out keep their values."""

    model_config = ConfigDict(extra="forbid")

    policy: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    tenants: Annotated[list[ProposedTenant], Field(max_length=1000)] = []
    devices: Annotated[
        dict[_Name, Annotated[int, Field(ge=0, le=100_000), JsonNumber()]], Field(max_length=100)
    ] = {}
    """accelerator → number of devices, instead of those that are up"""


class TenantConsequence(BaseModel):
    """Shares of a tenant before and after the changes, in the long run."""

    tenant: str
    devices_now: dict[str, float]
    """accelerator → average number of devices"""
    devices_then: dict[str, float]
    speed_now: float
    """speed of its jobs, in devices of average speed of the present cluster"""
    speed_then: float


class JobConsequence(BaseModel):
    """Speed of a job before and after the changes."""

    id: str
    tenant: str
    now: float | None
    """steps per second; null under a policy that divides among tenants only"""
    then: float | None


class Consequences(BaseModel):
    """Shares under the present policy and state, and with the changes."""

    policy_now: str
    policy_then: str
    devices_now: dict[str, int]
    devices_then: dict[str, int]
    tenants: list[TenantConsequence]
    jobs: list[JobConsequence]
    stranded: list[str]
    """jobs that could no longer run"""
    trades: list[str]
    """trades after the changes, in words"""


class AuditFigure(BaseModel):
    """One figure of an audit."""

    label: str
    value: str
    witness: str
    """the participants for which it holds"""


class PolicyAudit(BaseModel):
    """Fairness and efficiency of the running policy on the present jobs."""

    policy: str
    by: str
    """participants: jobs or tenants"""
    figures: list[AuditFigure]
    compared_with: str
    """the allocations that it is compared with"""


class TradeView(BaseModel):
    """A trade of devices between tenants."""

    at: float | None
    """null if it belongs to the present shares"""
    text: str
