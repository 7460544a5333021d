"""Constraints that bind a job or tenant."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fairlead.insight.bundles import job_speeds
from fairlead.insight.explain.subject import Subject, devices_in_use, devices_of
from fairlead.model.allocation import Allocation
from fairlead.model.snapshot import Snapshot

_CLOSE = 1e-6


@dataclass(frozen=True, slots=True)
class Binding:
    """A constraint that binds the subject."""

    what: Literal[
        "time",
        "devices",
        "cannot run",
        "gang",
        "quota",
        "waits",
        "priority",
        "weight",
        "guarantee",
    ]
    why: str
    on: str | None = None
    """the accelerator concerned, if any"""


def bindings(snap: Snapshot, allocation: Allocation, subject: Subject) -> Iterator[Binding]:
    """Yield the constraints that bind a job or tenant, its own before shared ones."""
    if allocation.rows == "jobs" and not subject.is_tenant:
        yield from _time_bound(snap, allocation, int(subject.rows[0]))
    yield from _quotas(snap, allocation, subject)
    full = devices_in_use(snap, allocation) >= snap.devices * (1 - _CLOSE) - _CLOSE
    speed = snap.speed[subject.rows]
    fitting = snap.gang_on[subject.rows] <= snap.capacity
    for j, name in enumerate(snap.cluster.accelerators):
        fits = fitting[:, j]
        if not (speed[:, j] > 0).any():
            yield Binding("cannot run", f"it cannot run on {name}", name)
        elif not fits[speed[:, j] > 0].any():
            up = int(snap.capacity[j])
            yield Binding("gang", f"its gang exceeds the {up} {name} available", name)
        elif full[j]:
            yield Binding("devices", f"every {name} is in use", name)


def _time_bound(snap: Snapshot, allocation: Allocation, row: int) -> Iterator[Binding]:
    members = allocation.members == snap.job[row]
    time = float(allocation.share[members.any(axis=1)].sum())
    if allocation.measure == "time" and time >= 1 - _CLOSE:
        best = snap.speed[row].max()
        if job_speeds(snap, allocation)[row] >= best * (1 - _CLOSE):
            why = "it runs all the time on its fastest accelerator"
        else:
            why = "it runs all the time: only faster devices would help"
        yield Binding("time", why)
    elif time <= _CLOSE:
        yield Binding("waits", "it waits: the policy gives it nothing yet")


def _quotas(snap: Snapshot, allocation: Allocation, subject: Subject) -> Iterator[Binding]:
    owner = snap.tenants[subject.tenant]
    if not owner.limit:
        return
    rows = np.flatnonzero(snap.tenant == subject.tenant)
    held = devices_of(Subject(owner.id, subject.tenant, rows, is_tenant=True), snap, allocation)
    for j, name in enumerate(snap.cluster.accelerators):
        limit = owner.limit.get(name)
        if limit is not None and held[j] >= limit - _CLOSE:
            yield Binding("quota", f"tenant {owner.id} has reached its limit of {name}", name)
