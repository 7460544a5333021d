"""What jobs measure of themselves, as mechanisms read it, and what emulated partners do to it."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fairlead.core import Scheduler
from fairlead.live.job_spec import JobSpec
from fairlead.live.leases.open_leases import OpenLease
from fairlead.model import events as ev
from fairlead.model.lease import SLOTS
from fairlead.model.speeds.table import SpeedTable


def measured(leases: Iterable[OpenLease], at: float) -> list[ev.Event]:
    """Return what running jobs have told of their speed, and of their use of a device if they did.

    Figures that a job reports as ``utilization`` (0 to 1) and ``memory_gib`` (of one device) are
    these.
    """
    return [
        ev.Measured(
            at,
            one.number,
            one.steps_per_s,
            _within(one.metrics.get("utilization"), 1.0),
            _within(one.metrics.get("memory_gib"), 1e6),
        )
        for one in leases
        if one.steps_per_s > 0 and not one.leaving
    ]


def _within(value: float | None, most: float) -> float | None:
    return value if value is not None and 0.0 <= value <= most else None


def emulated_speed(
    speeds: SpeedTable, scheduler: Scheduler[Any], specs: Mapping[str, JobSpec], lease: int
) -> float | None:
    """Return how fast a lease's job runs beside those that share its devices; None: not known.

    Pairs that the table has not measured take turns, and so do more than two.
    """
    leases, cluster = scheduler.leases, scheduler.cluster
    slot = lease & (SLOTS - 1)
    if slot >= len(leases.lease) or leases.lease[slot] != lease:
        return None
    devices = (leases.holder == slot).any(axis=0).nonzero()[0]
    here = np.unique(leases.holder[:, devices])
    others = here[(here >= 0) & (here != slot)]
    kinds = [cluster.accelerators[kind] for kind in cluster.accelerator_of[devices].tolist()]
    names = [specs[scheduler.jobs.ids[job]].workload for job in leases.job[others].tolist()]
    mine = specs[scheduler.jobs.ids[int(leases.job[slot])]].workload
    if len(names) == 1:
        beside = speeds.speed(mine, kinds, partner=names[0])
        if beside > 0:
            return beside
    return speeds.speed(mine, kinds) / (1 + len(names))
