"""Themis: finish-time fairness by leases (Mahajan et al., NSDI 2020), without its auctions."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.mechanisms._queues.serving import serve_idle_devices, serve_preemptively
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.lease import Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.placement import plan_moves
from fairlead.policies.base import mean_speed
from fairlead.policies.isolated import isolated_elapsed_s


@dataclass(frozen=True)
class Themis:
    """Lease devices to the jobs whose finish time is worst against a cluster of their own.

    ρ is the time from arrival to finish, if the job ran from now on, over the time it would take
    with its 1/n of the devices to itself. All leases end together; then the jobs with the
    greatest ρ get the devices. What falls idle earlier goes to waiting jobs in the same order.
    It takes all accelerators for equal: a job's speed is its mean over the devices. A job stays
    on its accelerator while it runs, and else takes the one with most devices left.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        starvation_free=True, per_accelerator_gangs=True
    )
    round_s: float = 1200.0
    """length of a lease"""

    def initial(self) -> None:
        """Return nothing: times and steps are all it goes by."""

    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        """Return the jobs with the greatest ρ, as far as devices reach."""
        until = snap.starts_at + self.round_s
        return Plan(
            *plan_moves(snap, serve_preemptively(snap, _order(snap))), until, until
        ), memory

    def refill(self, snap: Snapshot, memory: None, idle: IntArray) -> Placements:
        """Return waiting jobs in the same order for devices that have fallen idle."""
        del memory
        return serve_idle_devices(snap, _order(snap), idle)


def _order(snap: Snapshot) -> IntArray:
    return np.lexsort((snap.job, snap.arrival_at, -finish_time_fairness(snap)))


def finish_time_fairness(snap: Snapshot) -> FloatArray:
    """Return jobs → ρ, shared over isolated finish time, if the job ran from now on.

    A job's 1/n is its part of all weights, and a gang that is larger than its 1/n of the devices
    has them for as large a part of the time.
    """
    # The capacity of the whole cluster, so that a lost node changes nobody's due.
    speed = mean_speed(snap.profiles.gang_speed, snap.cluster.counts)[snap.profile]
    weight = snap.weight
    due = weight / weight.sum() * len(snap.cluster.node_of)
    left_s = snap.steps_left / speed
    shared_s = snap.starts_at - snap.arrival_at + left_s
    isolated_s = isolated_elapsed_s(snap) + left_s / np.minimum(due / snap.gang, 1.0)
    rho: FloatArray = shared_s / isolated_s
    return rho
