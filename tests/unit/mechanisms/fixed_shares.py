"""A policy with fixed shares of units, and snapshots for it."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Allocation, Column
from fairlead.model.capabilities import Capabilities
from fairlead.model.cluster import Cluster
from fairlead.model.plan import Plan
from fairlead.model.profiles import Profiles
from fairlead.model.snapshot import Snapshot

ROUND_S = 360.0
_NO_PROGRESS = Capabilities(reads_progress=False)
_LEAVES_IDLE = Capabilities(fills_idle=False)
Rows = dict[tuple[int, ...], list[float]]


@dataclass
class Fixed:
    """A policy that gives units (job numbers) the shares that a test fixes."""

    rows: Rows
    capabilities: Capabilities = _NO_PROGRESS
    asked: int = 0

    def allocate(self, snap: Snapshot) -> Allocation:
        self.asked += 1
        there = set(snap.job.tolist())
        kept = {unit: share for unit, share in self.rows.items() if there.issuperset(unit)}
        width = max(map(len, kept), default=1)
        members = [[*unit, *[-1] * (width - len(unit))] for unit in kept]
        n_accelerators = len(snap.capacity)
        return Allocation(
            members=np.array(members, dtype=np.int64).reshape(-1, width),
            share=np.array(list(kept.values())).reshape(-1, n_accelerators),
            columns=tuple(Column(j) for j in range(n_accelerators)),
        )


def snapshot(
    cluster: Cluster,
    gang: list[int],
    holds: list[list[int]] | None = None,
    *,
    starts_at: float = 0.0,
    received_s: list[list[float]] | None = None,
    job: list[int] | None = None,
    changes: int = 1,
) -> Snapshot:
    """Return a snapshot in which row r holds devices (lanes × devices) under lease 100 + r."""
    n, n_accelerators = len(gang), len(cluster.accelerators)
    held = np.array(holds if holds is not None else [[-1] * len(cluster.node_of)])
    on, lease = np.full(n, -1), np.full(n, -1)
    for (_, device), row in np.ndenumerate(held):
        if row >= 0:
            on[row], lease[row] = cluster.accelerator_of[device], 100 + row
    return Snapshot(
        at=starts_at,
        starts_at=starts_at,
        cluster=cluster,
        capacity=cluster.counts,
        usable=np.arange(len(cluster.node_of)),
        tenants=(),
        profiles=Profiles(
            np.ones((n, n_accelerators)), np.array(gang), np.ones(n), np.zeros(n, dtype=np.int64)
        ),
        job=np.arange(n) if job is None else np.array(job),
        profile=np.arange(n),
        arrival_at=np.zeros(n),
        total_steps=np.ones(n),
        steps=np.zeros(n),
        deadline_at=np.full(n, np.inf),
        priority=np.zeros(n),
        received_s=np.zeros((n, n_accelerators))
        if received_s is None
        else np.array(received_s, float),
        on=on,
        lease=lease,
        holds=held,
        changes=changes,
    )


def started(plan: Plan) -> dict[int, tuple[int, ...]]:
    return {p.job: p.devices for p in plan.start}


V2 = Cluster.of({"v100": 2})
