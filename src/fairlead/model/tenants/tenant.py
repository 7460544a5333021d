"""Tenants: the users and teams that share the cluster."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead.model.errors import require
from fairlead.model.job import OMIT_IF_NONE


@dataclass(frozen=True, slots=True)
class Tenant:
    """A user or team with a weight, possibly inside another tenant.

    ``inner`` names the order among its own jobs: ``fairness`` or ``fifo``. A quota (guarantee and
    limit) covers its own jobs and those of all tenants inside it.
    """

    id: str
    weight: float = 1.0
    parent: str | None = None
    inner: str = "fairness"
    priority: int = 0
    """its jobs precede all jobs of tenants with a lower priority"""
    guarantee: Mapping[str, float] = field(default_factory=dict)
    """accelerator → devices it has whenever it can use them; others borrow them meanwhile"""
    guarantee_in: str = "devices"
    """``speed``: any devices that give its jobs the speed of the guaranteed ones meet it"""
    limit: Mapping[str, float] = field(default_factory=dict)
    """accelerator → maximum of devices it holds at a time, rounded up"""
    max_priority: int | None = field(default=None, metadata=OMIT_IF_NONE)
    """highest priority that its own tokens may give a job; None: any"""
    max_weight: float | None = field(default=None, metadata=OMIT_IF_NONE)
    """highest weight that its own tokens may give a job; None: any"""
    max_jobs: int | None = field(default=None, metadata=OMIT_IF_NONE)
    """maximum number of its jobs that have not ended, submitted by its own tokens; None: any"""

    def __post_init__(self) -> None:
        require(bool(self.id), "tenants.id", self.id, "a name")
        require(0 < self.weight < math.inf, "tenants.weight", self.weight, "above 0 and finite")
        require(
            self.inner in ("fairness", "fifo"), "tenants.inner", self.inner, "fairness or fifo"
        )
        require(
            self.guarantee_in in ("devices", "speed"),
            "tenants.guarantee_in",
            self.guarantee_in,
            "devices or speed",
        )
        for cap, least in (("max_weight", 0.0), ("max_jobs", 1)):
            value = getattr(self, cap)
            valid = value is None or least <= value < math.inf
            require(valid, f"tenants.{cap}", value, f"{least:g} or more, or none")
        for name, quota in (("guarantee", self.guarantee), ("limit", self.limit)):
            for accelerator, devices in quota.items():
                field_name = f"tenants.{name}.{accelerator}"
                require(0 <= devices < math.inf, field_name, devices, "0 devices or more")
        for accelerator, devices in self.guarantee.items():
            limit = self.limit.get(accelerator, math.inf)
            field_name = f"tenants.guarantee.{accelerator}"
            require(devices <= limit, field_name, devices, f"at most its limit, {limit:g}")
