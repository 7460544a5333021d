"""What tenants submit."""

import math
from dataclasses import dataclass

from fairlead.model.errors import InputError

DEFAULT_TENANT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training run: a gang of equal tasks that has ``total_steps`` to make.

    A job is entitled in proportion to its weight: weight 2 is twice the normalised speed.
    ``accelerators`` are those it may use (None: all); ``min_gang`` and ``max_gang`` bound an
    elastic gang; jobs with the same ``multijob`` are one search of which the best survives.
    """

    id: str
    workload: str
    total_steps: float
    gang: int = 1
    arrival_at: float = 0.0
    tenant: str = DEFAULT_TENANT
    weight: float = 1.0
    priority: int = 0
    deadline_s: float | None = None
    min_gang: int | None = None
    max_gang: int | None = None
    accelerators: tuple[str, ...] | None = None
    memory_gib: float | None = None
    utilization: float | None = None
    multijob: str | None = None
    duration_s: float | None = None

    def __post_init__(self) -> None:
        if not self.id:
            raise InputError("a job has no id", fix="give every job an id", field="job_id")
        _require(self.gang >= 1, "gang", self.gang, "at least 1")
        _require(_positive(self.total_steps), "total_steps", self.total_steps, "above 0")
        _require(_positive(self.weight), "weight", self.weight, "above 0 and finite")
        _require(0 <= self.arrival_at < math.inf, "arrival_s", self.arrival_at, "0 or more")
        for name in ("deadline_s", "memory_gib", "duration_s"):
            value = getattr(self, name)
            _require(value is None or _positive(value), name, value, "above 0")
        _require(
            self.utilization is None or 0 <= self.utilization <= 1,
            "utilization",
            self.utilization,
            "between 0 and 1",
        )
        low = self.min_gang if self.min_gang is not None else self.gang
        high = self.max_gang if self.max_gang is not None else self.gang
        _require(1 <= low <= self.gang, "min_gang", low, f"from 1 to the gang, {self.gang}")
        _require(high >= self.gang, "max_gang", high, f"at least the gang, {self.gang}")


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who shares the cluster: a user or team with a weight, possibly inside another.

    ``inner`` says how its own jobs share what it gets: by fairness or first in, first out.
    """

    id: str
    weight: float = 1.0
    parent: str | None = None
    inner: str = "fairness"

    def __post_init__(self) -> None:
        _require(bool(self.id), "tenants.id", self.id, "a name")
        _require(_positive(self.weight), "tenants.weight", self.weight, "above 0 and finite")
        _require(
            self.inner in ("fairness", "fifo"), "tenants.inner", self.inner, "fairness or fifo"
        )


def _positive(value: float) -> bool:
    return 0 < value < math.inf


def _require(holds: bool, field: str, value: object, wanted: str) -> None:
    if not holds:
        raise InputError(f"{value!r} is not allowed", fix=f"give {wanted}", field=field)
