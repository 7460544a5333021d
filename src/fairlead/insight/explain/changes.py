"""Possible changes for a job or tenant, and the edits that make them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fairlead.insight.counterfactuals import with_device, with_jobs, with_tenant_weight
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import InputError
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.text import speed_text

ChangeKind = Literal["accelerator", "gang", "weight", "device"]
EFFORT: tuple[ChangeKind, ...] = ("accelerator", "gang", "weight", "device")
"""kinds of change by effort: the owner's choice, then entitlements, then hardware"""


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """One change, the snapshot with it, and the edit of the instance."""

    kind: ChangeKind
    what: str
    """text that continues "it would run 10 % faster …" """
    snap: Snapshot
    edit: dict[str, Any] = field(default_factory=dict)
    """members of the instance's JSON to set: cluster, jobs by id, tenants by id"""
    assumed: str = ""
    """source of a speed that was not measured for this job"""
    accelerator: int | None = None
    """the accelerator concerned, if any"""


def changes(snap: Snapshot, rows: IntArray, tenant: int) -> Iterator[Change]:
    """Yield every change to try for these jobs of one tenant."""
    for j in range(len(snap.capacity)):
        yield from _accelerator(snap, rows, j)
    yield from _gang(snap, rows)
    yield from _weight(snap, rows, tenant)
    for j, name in enumerate(snap.cluster.accelerators):
        if (snap.speed[rows, j] > 0).any():
            yield Change(
                "device",
                f"with one more {name} in the cluster",
                with_device(snap, j),
                {"cluster": {name: int(snap.capacity[j]) + 1}},
                accelerator=j,
            )


def _accelerator(snap: Snapshot, rows: IntArray, j: int) -> Iterator[Change]:
    """Yield the change that lets jobs run on one more accelerator, if their speed is known."""
    fits = (snap.gang_on <= snap.capacity)[rows, j]
    closed = rows[(snap.speed[rows, j] <= 0) & fits]
    known = [
        (row, *speed) for row in closed.tolist() if (speed := _speed_on_accelerator(snap, row, j))
    ]
    if not known:
        return
    name = snap.cluster.accelerators[j]
    chosen = np.array([row for row, _, _ in known])
    speeds = snap.speed[chosen]
    speeds[:, j] = [value for _, value, _ in known]
    at = f" at {speed_text(speeds[0, j])}" if len(rows) == 1 else ""
    yield Change(
        "accelerator",
        f"if it could also run on {name}{at}",
        with_jobs(snap, chosen, speed=speeds),
        {"jobs": {_id(snap, row): {"speeds": {name: value}} for row, value, _ in known}},
        assumed="; ".join(dict.fromkeys(source for _, _, source in known)),
        accelerator=j,
    )


def _speed_on_accelerator(snap: Snapshot, row: int, j: int) -> tuple[float, str] | None:
    """Return a job's speed on an accelerator that it does not use, and the source; else None."""
    needs = np.broadcast_to(snap.gang_on, snap.speed.shape)[:, j]
    workload, gang = _workload(snap, row), int(needs[row])
    if snap.speeds is not None:
        speed = _measured(snap, workload, gang)[j]
        if speed > 0:
            return float(speed), "measured for its workload"
    runs = np.flatnonzero(snap.speed[:, j] > 0)
    for other in runs.tolist() if workload else ():
        if _workload(snap, other) == workload and needs[other] == gang:
            return float(snap.speed[other, j]), f"as {_id(snap, other)} runs there"
    both = (snap.speed[runs] > 0) & (snap.speed[row] > 0)
    runs, both = runs[both.any(axis=1)], both[both.any(axis=1)]
    if not len(runs):
        return None
    with np.errstate(divide="ignore"):
        log = np.where(snap.speed > 0, np.log(snap.speed), 0.0)
    # The mean speed-up of the other jobs there, over the accelerators that this job uses.
    over = (np.where(both, log[runs, j][:, None] - log[runs] + log[row], 0.0)).sum(axis=1)
    speed = float(np.exp((over / both.sum(axis=1)).mean()))
    name = snap.cluster.accelerators[j]
    return float(f"{speed:.6g}"), f"assuming the average speed-up of other jobs on {name}"


def _gang(snap: Snapshot, rows: IntArray) -> Iterator[Change]:
    """Yield gangs of half the size and of 1, for jobs with equal gangs on all accelerators."""
    one_gang = (snap.gang_on == snap.gang[:, None]).all(axis=1)
    large = rows[(snap.gang > 1)[rows] & one_gang[rows]]
    tried: list[IntArray] = []
    for gang in (snap.gang[large] // 2, np.ones(len(large), np.int64)):
        if not len(large) or any(np.array_equal(gang, before) for before in tried):
            continue
        tried.append(gang)
        known = [_speed_of_gang(snap, r, g) for r, g in zip(large, gang.tolist(), strict=True)]
        speed = np.array([speed for speed, _ in known])
        to = f"a gang of {gang[0]} instead of {snap.gang[large[0]]}"
        if len(large) > 1:
            to = "gangs of 1" if (gang == 1).all() else "half the gang for each of its jobs"
        accelerators = snap.cluster.accelerators
        yield Change(
            "gang",
            f"with {to}",
            with_jobs(snap, large, speed=speed, gang=gang),
            {
                "jobs": {
                    _id(snap, int(row)): {
                        "gang": g,
                        "speeds": dict(zip(accelerators, s.tolist(), strict=True)),
                    }
                    for row, g, s in zip(large.tolist(), gang.tolist(), speed, strict=True)
                }
            },
            assumed="; ".join(dict.fromkeys(source for _, source in known)),
        )


def _speed_of_gang(snap: Snapshot, row: int, gang: int) -> tuple[FloatArray, str]:
    """Return accelerators → speed of a job with another gang, and the source."""
    workload, now = _workload(snap, row), snap.speed[row]
    if snap.speeds is not None:
        speed = np.where(now > 0, _measured(snap, workload, gang), 0.0)
        if (speed > 0).any():
            return speed, "measured for its workload"
    same = (snap.gang_on == gang).all(axis=1)
    for other in np.flatnonzero(same).tolist() if workload else ():
        if _workload(snap, other) == workload and (snap.speed[other] > 0)[now > 0].all():
            speed = np.where(now > 0, snap.speed[other], 0.0)
            return speed, f"as {_id(snap, other)} runs"
    return now * gang / snap.gang[row], "assuming speed in proportion to the gang"


def _weight(snap: Snapshot, rows: IntArray, tenant: int) -> Iterator[Change]:
    """Yield doubled weights of the jobs and of their tenant; policies differ in which they use."""
    weight = 2.0 * snap.weight[rows]
    whose = "its weight" if len(rows) == 1 else "the weight of each of its jobs"
    yield Change(
        "weight",
        f"with {whose} doubled",
        with_jobs(snap, rows, weight=weight),
        {
            "jobs": {
                _id(snap, row): {"weight": w}
                for row, w in zip(rows.tolist(), weight.tolist(), strict=True)
            }
        },
    )
    owner = snap.tenants[tenant]
    yield Change(
        "weight",
        f"with the weight of tenant {owner.id} doubled",
        with_tenant_weight(snap, tenant, 2.0 * owner.weight),
        {"tenants": {owner.id: {"weight": 2.0 * owner.weight}}},
    )


def _measured(snap: Snapshot, workload: str, gang: int) -> FloatArray:
    accelerators = snap.cluster.accelerators
    assert snap.speeds is not None
    try:
        return snap.speeds.row(workload, gang, accelerators)
    except InputError:  # not in the table
        return np.zeros(len(accelerators))


def _workload(snap: Snapshot, row: int) -> str:
    names = snap.profiles.workload
    return names[int(snap.profile[row])] if names else ""


def _id(snap: Snapshot, row: int) -> str:
    return snap.ids[int(snap.job[row])]
