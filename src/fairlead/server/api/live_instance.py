"""The jobs and devices of a live scheduler now, as a snapshot or an instance."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from fairlead.live.driver import Live
from fairlead.live.planning.left_out import without
from fairlead.model.arrays import IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot
from fairlead.model.tenants.tenant import Tenant


def current_snapshot(live: Live) -> Snapshot:
    """Return the current state without the jobs that the last plan left out."""
    at = live.clock.now()
    return without(live.scheduler.snapshot(at, at, pins=False), live.scheduler.left_out)


def runnable_rows(snap: Snapshot) -> IntArray:
    """Return the rows of the jobs that can run on the nodes that are up."""
    return np.flatnonzero(((snap.speed > 0) & (snap.gang_on <= snap.capacity)).any(axis=1))


def instance_of(snap: Snapshot) -> Instance:
    """Return a snapshot as an instance, without jobs that cannot run on the nodes that are up."""
    accelerators, speed = snap.cluster.accelerators, snap.speed
    gangs = np.broadcast_to(snap.gang_on, speed.shape)
    tenants, workload = snap.tenants, snap.profiles.workload
    jobs = tuple(
        InstanceJob(
            id=snap.ids[int(snap.job[row])],
            speeds=dict(zip(accelerators, speed[row].tolist(), strict=True)),
            workload=workload[int(snap.profile[row])],
            tenant=tenants[int(snap.tenant[row])].id,
            gang=int(snap.gang[row]),
            gangs=dict(zip(accelerators, gangs[row].tolist(), strict=True)),
            weight=float(snap.weight[row]),
            steps_left=float(snap.steps_left[row]),
            elapsed_s=max(float(snap.elapsed_s[row]), 0.0),
            isolated_elapsed_s=float(snap.isolated_elapsed_s[row]),
            deadline_s=_remaining_s(float(snap.deadline_at[row]) - snap.at),
            priority=int(snap.precedence[row]),
        )
        for row in runnable_rows(snap).tolist()
    )
    counts = dict(zip(accelerators, snap.capacity.tolist(), strict=True))
    totals = snap.cluster.count_by_name()
    whole = {name for name, count in totals.items() if counts[name] == count}
    cluster = Cluster.of(counts, details=snap.cluster.details)
    return Instance(
        cluster, jobs, tuple(_without_unavailable_quota(tenant, whole) for tenant in tenants)
    )


def _without_unavailable_quota(tenant: Tenant, whole: Collection[str]) -> Tenant:
    """Return a tenant without quotas of accelerators that are partly down."""
    return replace(
        tenant,
        guarantee={name: count for name, count in tenant.guarantee.items() if name in whole},
        limit={name: count for name, count in tenant.limit.items() if name in whole},
    )


def _remaining_s(seconds: float) -> float | None:
    """Return the time to a deadline, at least 1 ms; None without one."""
    return None if np.isinf(seconds) else max(seconds, 1e-3)
