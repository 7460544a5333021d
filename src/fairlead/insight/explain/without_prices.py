"""Explanations under policies that compute no shares: its devices, or what it waits for."""

from collections.abc import Iterator

import numpy as np

from fairlead.insight.explain.starvation import (
    CanSee,
    Names,
    devices_now,
    everything,
    first_of,
    reached_limits,
    starvation_causes,
)
from fairlead.model.arrays import FloatArray
from fairlead.model.snapshot import Snapshot
from fairlead.model.tenants.tree import TenantTree
from fairlead.sim.report.summary import join_with_and


def explain_without_prices(
    snap: Snapshot, row: int, policy: str, can_see: CanSee = everything
) -> list[str]:
    """Return paragraphs on a job's devices, those that it waits for, and the missing prices."""
    held = devices_now(snap)
    job = snap.ids[int(snap.job[row])]
    counts = zip(snap.cluster.accelerators, held[row].tolist(), strict=True)
    own = [f"{count:g} {name}" for name, count in counts if count]
    return [
        *(
            [f"Job {job} is running on {join_with_and(own)}."]
            if own
            else [f"Job {job} is queued and holds no devices.", *_waits(snap, row, held, can_see)]
        ),
        f"{policy} computes no shares, so it has no prices to explain; `fairlead job {job}` shows"
        " the job's believed speeds.",
    ]


def _waits(snap: Snapshot, row: int, held: FloatArray, can_see: CanSee) -> Iterator[str]:
    gangs = np.broadcast_to(snap.gang_on, snap.speed.shape)[row]
    able = np.flatnonzero((snap.speed[row] > 0) & (gangs <= snap.capacity))
    if not len(able):
        gang = int(snap.gang[row])
        yield f"No accelerator that it may use has {gang} devices that are up."
        return
    accelerator_of = snap.cluster.accelerator_of[snap.usable]
    taken = (snap.holds[:, snap.usable] >= 0).any(axis=0)
    used = np.bincount(accelerator_of, taken, len(snap.capacity))
    needs = [
        f"{gangs[j]} {snap.cluster.accelerators[j]} ({used[j]:g} of {snap.capacity[j]} held)"
        for j in able.tolist()
    ]
    yield f"It needs {' or '.join(needs)}."
    holders = np.flatnonzero(held[:, able].sum(axis=1))
    if len(holders):
        names = Names(snap, can_see)
        named = [names.job(holder) for holder in holders.tolist()]
        yield f"These devices are held by {first_of(named)}."
    tree = TenantTree(snap.tenants)
    causes = [
        *starvation_causes(snap, row, held, can_see),
        *reached_limits(snap, held, tree, [int(snap.tenant[row])]),
    ]
    if causes:
        yield f"It waits: {'; '.join(cause.why for cause in causes)}."
