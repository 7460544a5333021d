"""The experiment's jobs: random workloads with Poisson arrivals, of several tenants."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.tenants.tenant import Tenant

TENANTS = (Tenant("vision"), Tenant("language"), Tenant("ranking"))
"""by kind of model"""
SPEEDUP_TENANTS = (Tenant("scaling"), Tenant("steady"))
"""by speed-up: of jobs that are much faster on the fastest accelerator, and of the others"""
_SCALES = 2.0
"""speed-up from the slowest to the fastest accelerator above which a job is of ``scaling``"""
_TENANT_OF = {
    "cnn": "vision",
    "vit": "vision",
    "gan": "vision",
    "encoder": "language",
    "decoder": "language",
    "lstm": "language",
    "recommender": "ranking",
    "policy": "ranking",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """One job to submit."""

    workload: str
    tenant: str
    steps: int
    arrival_s: float


def tenants_of(names: Collection[str]) -> Sequence[Tenant]:
    """Return the tenants of a scenario by the names that its jobs have."""
    by_kind = {tenant.id for tenant in TENANTS}
    return TENANTS if by_kind.issuperset(names) else SPEEDUP_TENANTS


def planned_jobs(
    speeds: SpeedTable,
    accelerators: tuple[str, ...],
    *,
    count: int,
    alone_s: tuple[float, float],
    interarrival_s: float,
    seed: int,
    by_speedup: bool = False,
) -> list[PlannedJob]:
    """Return jobs of all models at their smallest and their largest batch size.

    Alone on its fastest accelerator a job would take between the two ``alone_s``, without its
    start. Arrivals are Poisson, with ``interarrival_s`` between them on average. Tenants differ
    in the kind of their models, or in their speed-up.
    """
    rng = np.random.default_rng(seed)
    each = _smallest_and_largest(speeds.workloads)
    rounds = [rng.permutation(each) for _ in range(-(-count // len(each)))]
    order = rng.permutation(np.concatenate(rounds)[:count])
    arrivals = np.cumsum(rng.exponential(interarrival_s, count))
    seconds = rng.uniform(*alone_s, count)
    return [
        PlannedJob(
            workload=str(workload),
            tenant=_tenant(speeds.row(str(workload), 1, accelerators))
            if by_speedup
            else _TENANT_OF[str(workload).rpartition("-")[0]],
            steps=max(int(alone * speeds.row(str(workload), 1, accelerators).max()), 1),
            arrival_s=float(arrival),
        )
        for workload, alone, arrival in zip(order, seconds, arrivals - arrivals[0], strict=True)
    ]


def _tenant(steps_per_s: FloatArray) -> str:
    return "scaling" if steps_per_s.max() > _SCALES * steps_per_s.min() else "steady"


def _smallest_and_largest(workloads: Iterable[str]) -> list[str]:
    """Return each model's workloads with the smallest and the largest batch size."""
    sizes: dict[str, list[int]] = {}
    for workload in workloads:
        model, _, batch_size = workload.rpartition("-")
        sizes.setdefault(model, []).append(int(batch_size))
    return [f"{model}-{size}" for model, each in sizes.items() for size in (min(each), max(each))]
