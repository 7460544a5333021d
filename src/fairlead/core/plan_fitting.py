"""A plan that comes late, fitted to what has happened since it was asked for."""

import numpy as np

from fairlead.core.jobs import JobState, JobTable
from fairlead.core.leases import LeaseTable
from fairlead.core.nodes import Nodes
from fairlead.model.arrays import IntArray
from fairlead.model.lease import SLOTS, Placements
from fairlead.model.plan import Plan


def fitted(
    plan: Plan, planned_epoch: int, jobs: JobTable, leases: LeaseTable, nodes: Nodes
) -> tuple[IntArray, Placements]:
    """Return the leases to stop and what is to start; leases from the epoch on are unplanned.

    Jobs that ended and devices that were lost are dropped. Devices that the plan wants and a job
    that waited was lent meanwhile are taken back, and so is what a job to be started elsewhere
    was lent.
    """
    active = jobs.state[plan.start.job] == JobState.ACTIVE
    stop = plan.stop[leases.is_open(plan.stop)]
    stays, closed = nodes.pinned(leases)
    if len(stays):
        active &= ~np.isin(plan.start.job, stays)
        stop = stop[~np.isin(leases.job[stop & (SLOTS - 1)], stays)]
    shut = ~nodes.is_open | closed
    start = plan.start.where(active & ~plan.start.any_device(shut))
    wanted = np.zeros(len(nodes.is_up), dtype=bool)
    wanted[start.device] = True
    there = leases.lease[leases.on_devices(wanted)]
    lent = there[there >= planned_epoch * SLOTS]  # older ones are partners that stay
    own = [leases.lease[leases.of_job(job)] for job in start.job[start.copy == 0].tolist()]
    more = np.concatenate([lent, *own])
    return np.union1d(stop, more[leases.is_open(more)]), start
