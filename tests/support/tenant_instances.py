"""Snapshots with tenants, built from tables of speeds."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.tenants.tenant import Tenant


def tenants(
    rows: Any,
    cluster: dict[str, int] | None = None,
    weights: Any = None,
    owner: Sequence[int] | None = None,
) -> Snapshot:
    """Return one job per row; row i belongs to tenant ``owner[i]``, by default to ``u<i>``."""
    devices = cluster or {f"gpu{j + 1}": 1 for j in range(len(rows[0]))}
    owner = list(range(len(rows))) if owner is None else owner
    count = max(owner) + 1
    weights = [1.0] * count if weights is None else weights
    jobs = tuple(
        InstanceJob(
            id=f"j{i}",
            workload=f"w{i}",
            tenant=f"u{owner[i]}",
            speeds=dict(zip(devices, map(float, row), strict=True)),
        )
        for i, row in enumerate(rows)
    )
    listed = tuple(Tenant(f"u{i}", weight=float(weights[i])) for i in range(count))
    return snapshot_of(Instance(Cluster.of(devices), jobs, listed))


def random_table(rng: np.random.Generator, *, most: int = 6, widest: int = 4) -> Any:
    """Return speedups of distinct tenants over the slowest accelerator, some as whole numbers."""
    count, width = int(rng.integers(2, most + 1)), int(rng.integers(2, widest + 1))
    if rng.random() < 0.3:
        table = rng.integers(1, 7, (count, width)).astype(float)
    else:
        table = rng.uniform(1.0, 6.0, (count, width))
    table[:, 0] = 1.0
    return np.unique(table, axis=0)


def random_cluster(rng: np.random.Generator, width: int) -> dict[str, int]:
    return {f"gpu{j + 1}": int(rng.integers(1, 9)) for j in range(width)}


def alike_table(rng: np.random.Generator) -> tuple[Any, dict[str, int]]:
    """Return tenants with the same order in every ratio of consecutive accelerators."""
    count, width = int(rng.integers(2, 7)), int(rng.integers(3, 6))
    ratio = np.sort(rng.uniform(1.05, 2.5, (count, width - 1)), axis=0)
    table = np.cumprod(np.column_stack([np.ones(count), ratio]), axis=1)
    return table, random_cluster(rng, width)
