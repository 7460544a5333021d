"""Fits a late plan to the changes since it was requested."""

import numpy as np

from fairlead.core.jobs import JobState, JobTable
from fairlead.core.leases import LeaseTable
from fairlead.core.nodes import NodeTable
from fairlead.model.arrays import IntArray
from fairlead.model.lease import SLOT_LIMIT, Placements
from fairlead.model.plan import Plan


def fit_late_plan(
    plan: Plan, planned_epoch: int, jobs: JobTable, leases: LeaseTable, nodes: NodeTable
) -> tuple[IntArray, Placements]:
    """Return the leases to stop and the placements to start.

    Ended jobs and lost devices are dropped. Leases from ``planned_epoch`` on are unknown to the
    plan: they are stopped if they hold devices that the plan uses, or belong to a job that the
    plan starts elsewhere.
    """
    active = jobs.state[plan.start.job] == JobState.ACTIVE
    stop = plan.stop[leases.is_open(plan.stop)]
    pinned, closed = nodes.pinned_jobs(leases)
    if len(pinned):
        active &= ~np.isin(plan.start.job, pinned)
        stop = stop[~np.isin(leases.job[stop & (SLOT_LIMIT - 1)], pinned)]
    shut = ~nodes.is_open | closed
    start = plan.start.where(active & ~plan.start.any_device(shut))
    wanted = np.zeros(len(nodes.is_up), dtype=bool)
    wanted[start.device] = True
    holding = leases.lease[leases.on_devices(wanted)]
    unplanned = holding[holding >= planned_epoch * SLOT_LIMIT]  # older ones are partners that stay
    own = [leases.lease[leases.of_job(job)] for job in start.job[start.copy == 0].tolist()]
    more = np.concatenate([unplanned, *own])
    return np.union1d(stop, more[leases.is_open(more)]), start
