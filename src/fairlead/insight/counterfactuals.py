"""Changed copies of a snapshot: other speeds, gangs, weights or devices."""

from dataclasses import replace

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster, Node
from fairlead.model.plan import ABSENT
from fairlead.model.profiles import Profiles
from fairlead.model.snapshot import Snapshot


def with_jobs(
    snap: Snapshot,
    rows: IntArray,
    *,
    speed: FloatArray | None = None,
    gang: IntArray | None = None,
    weight: FloatArray | None = None,
) -> Snapshot:
    """Return the snapshot in which these jobs have other speeds, gangs or weights.

    Each array has one row per job, ``speed`` one column per accelerator. A new gang applies to
    all accelerators.
    """
    old, changed = snap.profiles, snap.profile[rows]
    profile = snap.profile.copy()
    profile[rows] = len(old.gang) + np.arange(len(rows))
    workload = (
        [*old.workload, *(old.workload[i] for i in changed.tolist())] if old.workload else ()
    )
    profiles = Profiles(
        speed=np.concatenate([old.speed, old.speed[changed] if speed is None else speed]),
        gang=np.concatenate([old.gang, old.gang[changed] if gang is None else gang]),
        weight=np.concatenate([old.weight, old.weight[changed] if weight is None else weight]),
        tenant=np.concatenate([old.tenant, old.tenant[changed]]),
        workload=workload,
        gangs=_gangs(old, changed, gang),
        memory_gib=old.memory_gib
        if old.memory_gib is None
        else np.concatenate([old.memory_gib, old.memory_gib[changed]]),
    )
    return replace(snap, profiles=profiles, profile=profile)


def _gangs(old: Profiles, changed: IntArray, gang: IntArray | None) -> IntArray | None:
    if old.gangs is None:
        return None
    new = old.gangs[changed]
    if gang is not None:
        new = np.broadcast_to(gang[:, None], new.shape)
    return np.concatenate([old.gangs, new])


def with_tenant_weight(snap: Snapshot, tenant: int, weight: float) -> Snapshot:
    """Return the snapshot in which a tenant has another weight."""
    tenants = list(snap.tenants)
    tenants[tenant] = replace(tenants[tenant], weight=weight)
    return replace(snap, tenants=tuple(tenants))


def with_device(snap: Snapshot, accelerator: int) -> Snapshot:
    """Return the snapshot with one more device of an accelerator, on a new node.

    If each accelerator has one node and nothing runs, the device joins that node, as in a cluster
    description with one more device.
    """
    cluster, capacity = snap.cluster, snap.capacity.copy()
    name = cluster.accelerators[accelerator]
    capacity[accelerator] += 1
    room = None
    if snap.room is not None:
        room = snap.room.copy()
        room[accelerator] += 1.0
    n = len(cluster.accelerator_of)
    if (
        cluster.has_one_node_per_accelerator
        and len(snap.usable) == n
        and (snap.holds == ABSENT).all()
    ):
        nodes = tuple(
            replace(node, devices=(*node.devices, name)) if name in node.devices else node
            for node in cluster.nodes
        )
        usable = np.arange(n + 1)
    else:
        nodes = (*cluster.nodes, Node(f"{name}-more", (name,)))
        usable = np.append(snap.usable, n)
    column = np.full((snap.holds.shape[0], 1), ABSENT)
    leases = snap.holds_lease
    return replace(
        snap,
        cluster=Cluster(nodes, cluster.details),
        capacity=capacity,
        room=room,
        usable=usable,
        holds=np.concatenate([snap.holds, column], axis=1),
        holds_lease=None if leases is None else np.concatenate([leases, column], axis=1),
    )
