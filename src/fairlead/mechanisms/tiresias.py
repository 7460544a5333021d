"""Tiresias: discretised two-dimensional least attained service (Gu et al., NSDI 2019)."""

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
class Tiresias:
    """Serve first the jobs that have had little service so far, without knowing their length.

    Service is gang × time held, on whatever accelerator. A job begins in the first queue and
    falls into the second, and stays there, once it has had ``threshold_s``; the first queue goes
    before the second, and each is first in, first out. A job stays on its accelerator while it
    runs; otherwise it takes the one with most devices left, for Tiresias knows no speeds. Without
    promotion a steady stream of new jobs starves the second queue.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(per_accelerator_gangs=True)
    round_s: float = 360.0
    threshold_s: float = 3200.0
    """device-seconds of service after which a job falls into the second queue"""

    def initial(self) -> None:
        """Return nothing: the time that jobs have had is all it goes by."""

    def plan(self, snap: Snapshot, memory: None) -> tuple[Plan, None]:
        """Return the jobs of the first queue, then of the second, as far as devices reach."""
        until = snap.starts_at + self.round_s
        return Plan(
            *plan_moves(snap, serve_preemptively(snap, self._order(snap))), until, until
        ), memory

    def refill(self, snap: Snapshot, memory: None, idle: IntArray) -> Placements:
        """Return waiting jobs in the same order for devices that have fallen idle."""
        del memory
        return serve_idle_devices(snap, self._order(snap), idle)

    def _order(self, snap: Snapshot) -> IntArray:
        attained = snap.device_s
        # A job held until a round's end counts as served until then, give or take rounding.
        second = attained >= self.threshold_s - 1e-6
        return np.lexsort((snap.job, snap.arrival_at, second))
