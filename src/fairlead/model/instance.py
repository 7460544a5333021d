"""Instances: one allocation problem, with a cluster, jobs, tenants and measured pairs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead.model.cluster import Cluster
from fairlead.model.errors import ImpossibleJobError, InputError, require
from fairlead.model.job import DEFAULT_TENANT
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.validation import check_tenants


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceJob:
    """A job as policies see it: entitlement, remaining steps and speeds."""

    id: str
    speeds: Mapping[str, float]
    """accelerator → steps per second of the whole gang; 0 or absent: does not run there"""
    workload: str = ""
    tenant: str = DEFAULT_TENANT
    gang: int = 1
    weight: float = 1.0
    steps_left: float | None = None
    elapsed_s: float = 0.0
    """time since its arrival"""
    isolated_elapsed_s: float = 0.0
    """time that the steps made so far would have taken on an equal split of the cluster"""
    deadline_s: float | None = None
    """time from now until its deadline"""
    priority: int = 0
    """it precedes jobs with a lower one, among tenants of equal priority"""
    gangs: Mapping[str, int] = field(default_factory=dict)
    """accelerator → number of devices, where it differs from the gang; if every accelerator on
    which it runs has a number, the gang is that of the first"""

    def gang_on(self, accelerator: str) -> int:
        """Return the number of devices that the job needs at once on an accelerator."""
        return self.gangs.get(accelerator, self.gang)

    def __post_init__(self) -> None:
        for accelerator, count in self.gangs.items():
            require(count >= 1, f"gangs.{accelerator}", count, "at least 1")
        runs = [name for name, speed in self.speeds.items() if speed > 0]
        if runs and all(name in self.gangs for name in runs):
            object.__setattr__(self, "gang", self.gangs[runs[0]])
        others = {name: self.gangs[name] for name in runs if self.gang_on(name) != self.gang}
        object.__setattr__(self, "gangs", others)
        require(bool(self.id), "id", self.id, "a name")
        require(self.gang >= 1, "gang", self.gang, "at least 1")
        require(_positive(self.weight), "weight", self.weight, "above 0 and finite")
        for name in ("elapsed_s", "isolated_elapsed_s"):
            require(_size(getattr(self, name)), name, getattr(self, name), "0 or more")
        for name in ("steps_left", "deadline_s"):
            value = getattr(self, name)
            require(value is None or _positive(value), name, value, "above 0")
        for accelerator, speed in self.speeds.items():
            require(_size(speed), f"speeds.{accelerator}", speed, "0 or more, finite")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two jobs with equal gangs, measured together on the same devices."""

    jobs: tuple[str, str]
    speeds: Mapping[str, tuple[float, float]]
    """accelerator → steps per second of the first and of the second job"""

    def __post_init__(self) -> None:
        require(self.jobs[0] != self.jobs[1], "jobs", self.jobs[0], "two different jobs")
        for accelerator, speeds in self.speeds.items():
            require(all(map(_size, speeds)), f"speeds.{accelerator}", speeds, "0 or more, finite")


@dataclass(frozen=True, slots=True)
class Instance:
    """A cluster and the jobs and tenants that share it.

    Tenants that are referred to but not listed are added with default values. Speeds on
    accelerators that the cluster lacks are allowed and ignored.
    """

    cluster: Cluster
    jobs: tuple[InstanceJob, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    pairs: tuple[Pair, ...] = ()

    def __post_init__(self) -> None:
        _unique([job.id for job in self.jobs], "jobs")
        _unique([tenant.id for tenant in self.tenants], "tenants")
        object.__setattr__(self, "tenants", self._all_tenants())
        counts = self.cluster.count_by_name()
        check_tenants(self.tenants, counts)
        for i, job in enumerate(self.jobs):
            check_runs(job, counts, f"jobs[{i}]")
        self._check_pairs()

    def _all_tenants(self) -> tuple[Tenant, ...]:
        tenants = {tenant.id: tenant for tenant in self.tenants}
        parents = [tenant.parent for tenant in self.tenants if tenant.parent is not None]
        for name in (*parents, *(job.tenant for job in self.jobs)):
            tenants.setdefault(name, Tenant(name))
        return tuple(tenants.values())

    def _check_pairs(self) -> None:
        known = {job.id: job for job in self.jobs}
        seen: set[frozenset[str]] = set()
        for i, pair in enumerate(self.pairs):
            for name in pair.jobs:
                if name not in known:
                    raise InputError(
                        f"unknown job {name!r}", fix="expected listed jobs", field=f"pairs[{i}]"
                    )
            if frozenset(pair.jobs) in seen:
                raise InputError(
                    f"pair {'+'.join(pair.jobs)} listed twice",
                    fix="remove one",
                    field=f"pairs[{i}]",
                )
            seen.add(frozenset(pair.jobs))
            first, second = (known[name] for name in pair.jobs)
            for accelerator in self.cluster.accelerators:
                gangs = first.gang_on(accelerator), second.gang_on(accelerator)
                if accelerator in pair.speeds and gangs[0] != gangs[1]:
                    raise InputError(
                        f"{'+'.join(pair.jobs)} cannot share devices: gangs of {gangs[0]} and"
                        f" {gangs[1]}",
                        fix="remove the pair or make the gangs equal",
                        field=f"pairs[{i}].speeds.{accelerator}",
                    )


def check_runs(job: InstanceJob, counts: Mapping[str, int], where: str) -> None:
    """Raise ImpossibleJobError unless a job can run on these devices per accelerator."""
    able = {name: count for name, count in counts.items() if job.speeds.get(name, 0) > 0}
    if not able:
        raise ImpossibleJobError(
            f"job {job.id!r} has speed 0 on every accelerator of the cluster",
            fix=f"expected a speed above 0 on one of {', '.join(counts)}",
            field=f"{where}.speeds",
        )
    available = " or ".join(map(str, able.values())) if job.gangs else max(able.values())
    if all(job.gang_on(name) > count for name, count in able.items()):
        several = " or ".join(f"{job.gang_on(name)} {name}" for name in able)
        devices = "device" if job.gang == 1 else "devices"
        needs = several if job.gangs else f"{job.gang} {devices} of one accelerator"
        raise ImpossibleJobError(
            f"job {job.id!r} needs {needs}, the cluster has {available} that it can use",
            fix="lower the gang or add devices",
            field=f"{where}.gang",
        )


def _unique(names: list[str], where: str) -> None:
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name in seen:
            raise InputError(
                f"{name!r} listed twice", fix="expected unique ids", field=f"{where}[{i}].id"
            )
        seen.add(name)


def _positive(value: float) -> bool:
    return 0 < value < math.inf


def _size(value: float) -> bool:
    return 0 <= value < math.inf
