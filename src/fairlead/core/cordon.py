"""Cordoned nodes: nothing new starts there, and what runs there goes on until it ends."""

import numpy as np

from fairlead.core.leases import LeaseTable
from fairlead.model.arrays import BoolArray, IntArray


def pinned(leases: LeaseTable, cordoned: BoolArray) -> tuple[IntArray, BoolArray]:
    """Return the jobs that stay where they are, and the devices that are closed to all others.

    A gang that is partly on a cordoned node keeps its devices elsewhere, too, and with it whoever
    shares them: a mechanism that sees none of these can plan for the rest as for a smaller
    cluster. ``cordoned`` is devices → its node is cordoned.
    """
    closed = cordoned
    staying = np.zeros(len(leases.lease), dtype=bool)
    staying[leases.staying] = True
    while True:
        slots = leases.on_devices(closed)
        jobs = np.unique(leases.job[slots[staying[slots]]])
        theirs = staying & np.isin(leases.job, jobs)
        held = theirs[leases.holder].any(axis=0)
        if not (held & ~closed).any():
            return jobs, closed
        closed = closed | held
