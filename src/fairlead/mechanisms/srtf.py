"""Shortest remaining time first, preemptive, with the lengths of jobs known."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.mechanisms._queues.serving import serve_idle_devices, serve_preemptively
from fairlead.model.arrays import IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.lease import Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.placement import plan_moves


@dataclass(frozen=True)
class Srtf:
    """Run the jobs with the least time left, each on the fastest accelerator with room for it.

    The time left is what a job would need on the accelerator on which it is fastest of those
    with enough devices up. A job moves when a faster accelerator has room for it. Long jobs
    starve while shorter ones keep coming.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(per_accelerator_gangs=True)
    round_s: float = 360.0

    def initial(self) -> None:
        """Return nothing: the steps left are all it goes by."""

    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        """Return the jobs nearest to their end, as far as devices reach."""
        until = snap.starts_at + self.round_s
        wanted = serve_preemptively(snap, _order(snap), fastest=True)
        return Plan(*plan_moves(snap, wanted), until, until), memory

    def refill(self, snap: Snapshot, memory: None, idle: IntArray) -> Placements:
        """Return waiting jobs in the same order for devices that have fallen idle."""
        del memory
        return serve_idle_devices(snap, _order(snap), idle, fastest=True)


def _order(snap: Snapshot) -> IntArray:
    runs = snap.capacity >= snap.profiles.gang_on
    fastest = np.where(runs, snap.profiles.speed, 0.0).max(axis=1)[snap.profile]
    left_s = np.full(len(fastest), np.inf)
    np.divide(snap.steps_left, fastest, out=left_s, where=fastest > 0)
    return np.lexsort((snap.job, snap.arrival_at, left_s))
