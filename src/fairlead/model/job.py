"""What tenants submit."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fairlead.model.errors import InputError

DEFAULT_TENANT = "default"
OMIT_IF_EMPTY = {"written": "unless empty"}
"""of a field that is left out of logs while it is empty, so that they stay as they were"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training run: a gang of equal tasks that has ``total_steps`` to make.

    A job is entitled in proportion to its weight: weight 2 is twice the normalised speed.
    ``accelerators`` are those it may use (None: all); ``min_gang`` and ``max_gang`` bound an
    elastic gang; jobs with the same ``multijob`` are one search of which the best survives.
    ``gangs`` are the accelerators on which it needs another number of devices than its gang. Where
    all that it may use are given one, its gang is the first one's.
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
    gangs: Mapping[str, int] = field(default_factory=dict, hash=False, metadata=OMIT_IF_EMPTY)

    def __post_init__(self) -> None:
        if self.gangs:
            self._drop_default_gangs()
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

    def gang_on(self, accelerator: str) -> int:
        """Return how many devices the job needs at once on an accelerator."""
        return self.gangs.get(accelerator, self.gang)

    def _drop_default_gangs(self) -> None:
        """Keep of ``gangs`` what differs from the gang, so that equal jobs are equal."""
        names = self.accelerators or ()
        for accelerator, count in self.gangs.items():
            _require(count >= 1, "accelerators", f"{accelerator}={count}", "1 device or more")
            _require(accelerator in names, "accelerators", accelerator, "it among accelerators")
        if names and all(name in self.gangs for name in names):
            object.__setattr__(self, "gang", self.gangs[names[0]])
        others = {name: self.gangs[name] for name in names if self.gang_on(name) != self.gang}
        object.__setattr__(self, "gangs", others)
        if others and (self.min_gang, self.max_gang) != (None, None):
            raise InputError(
                "a job has either numbers of devices for accelerators or an elastic gang",
                fix="leave out the numbers, or min_gang and max_gang",
                field="accelerators",
            )


def parse_accelerators(listed: Iterable[str]) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return what ``v100`` and ``k80=2`` say: those a job may use, and the devices needed there.

    Only those with a number have one. Errors name the field ``accelerators``.
    """
    gangs: dict[str, int] = {}
    names: list[str] = []
    for entry in listed:
        name, equals, count = (part.strip() for part in entry.partition("="))
        _require(bool(name), "accelerators", entry, "an accelerator's name, e.g. v100 or k80=2")
        again = name in gangs or (equals and name in names)
        _require(not again, "accelerators", entry, "each accelerator once")
        names.append(name)
        if equals:
            good = count.isascii() and count.isdecimal() and len(count) < 7 and int(count) >= 1
            _require(good, "accelerators", entry, f"a whole number of devices, e.g. {name}=2")
            gangs[name] = int(count)
    return tuple(names), gangs


def format_accelerators(job: Job) -> tuple[str, ...] | None:
    """Return the accelerators that a job may use as ``parse_accelerators`` reads them."""
    if job.accelerators is None:
        return None
    gangs = job.gangs
    return tuple(f"{name}={gangs[name]}" if name in gangs else name for name in job.accelerators)


def per_accelerator_gangs_error(job_id: str) -> InputError:
    """Return the error that a job has numbers for accelerators under a policy that takes none."""
    return InputError(
        f"job {job_id!r} needs different numbers of devices on different accelerators, which this"
        " policy cannot give",
        fix="leave out the numbers, or use max-min, makespan, finish-time, hierarchical,"
        " throughput, cost, cost-slo, isolated, fifo, sjf, srtf, tiresias, themis, allox, capacity"
        " or lottery",
        field="accelerators",
    )


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who shares the cluster: a user or team with a weight, possibly inside another.

    ``inner`` says how its own jobs share what it gets: by fairness or first in, first out. A
    quota covers its own jobs and those of all tenants inside it.
    """

    id: str
    weight: float = 1.0
    parent: str | None = None
    inner: str = "fairness"
    priority: int = 0
    """its jobs come before all jobs of tenants with a lower one"""
    guarantee: Mapping[str, float] = field(default_factory=dict)
    """accelerator → devices it has whenever it can use them; others borrow them meanwhile"""
    guarantee_in: str = "devices"
    """``speed``: it is kept by any devices that make as much of its jobs as these would"""
    limit: Mapping[str, float] = field(default_factory=dict)
    """accelerator → devices, rounded up, of which it never holds more"""

    def __post_init__(self) -> None:
        _require(bool(self.id), "tenants.id", self.id, "a name")
        _require(_positive(self.weight), "tenants.weight", self.weight, "above 0 and finite")
        _require(
            self.inner in ("fairness", "fifo"), "tenants.inner", self.inner, "fairness or fifo"
        )
        _require(
            self.guarantee_in in ("devices", "speed"),
            "tenants.guarantee_in",
            self.guarantee_in,
            "devices or speed",
        )
        for name in ("guarantee", "limit"):
            for accelerator, devices in getattr(self, name).items():
                where = f"tenants.{name}.{accelerator}"
                _require(0 <= devices < math.inf, where, devices, "0 devices or more")
        for accelerator, devices in self.guarantee.items():
            most = self.limit.get(accelerator, math.inf)
            where = f"tenants.guarantee.{accelerator}"
            _require(devices <= most, where, devices, f"at most its limit, {most:g}")


def check_tenants(tenants: Sequence[Tenant], devices: Mapping[str, int]) -> None:
    """Raise InputError unless tenants are a tree and their quotas can be kept.

    Quotas name accelerators there are, and all guarantees together are no more than those.
    """
    _check_parents({tenant.id: tenant.parent for tenant in tenants})
    promised = dict.fromkeys(devices, 0.0)
    promises = {tenant.id: tenant.guarantee for tenant in tenants}
    for tenant in tenants:
        for name in (*tenant.guarantee, *tenant.limit):
            if name not in devices:
                raise InputError(
                    f"tenant {tenant.id!r} has a quota of {name!r}, which the cluster lacks",
                    fix=f"use one of {', '.join(devices)}",
                    field="tenants",
                )
        outer = promises.get(tenant.parent or "", {})
        for name, count in tenant.guarantee.items():
            if name not in outer:  # what its parent is promised already includes it
                promised[name] += count
    for name, count in promised.items():
        if count > devices[name]:
            raise InputError(
                f"{count:g} {name} are guaranteed in all, the cluster has {devices[name]}",
                fix="lower guarantees or add devices",
                field="tenants.guarantee",
            )


def _check_parents(parent: Mapping[str, str | None]) -> None:
    safe: set[str] = set()
    for start in parent:
        path: dict[str, None] = {}
        at: str | None = start
        while at is not None and at not in safe:
            if at in path:
                raise InputError(
                    f"tenant {at!r} is inside itself",
                    fix="remove a parent from the circle",
                    field="tenants.parent",
                )
            path[at] = None
            at = parent.get(at)
        safe.update(path)


def _positive(value: float) -> bool:
    return 0 < value < math.inf


def _require(holds: bool, field: str, value: object, wanted: str) -> None:
    if not holds:
        raise InputError(f"{value!r} is not allowed", fix=f"give {wanted}", field=field)
