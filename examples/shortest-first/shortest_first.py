"""A policy in one small file: the job with the least time left is served first."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import job_allocation


@dataclass(frozen=True)
class ShortestFirst:
    """Serve the job with the least time left first, on the fastest accelerator with room."""

    def allocate(self, snap: Snapshot) -> Allocation:
        free, share = snap.devices.copy(), np.zeros(snap.speed.shape)
        for job in np.argsort(snap.steps_left / snap.speed.max(axis=1), kind="stable"):
            speed = np.where(free >= snap.gang[job], snap.speed[job], 0.0)
            if speed.any():
                share[job, speed.argmax()] = 1.0
                free[speed.argmax()] -= snap.gang[job]
        return job_allocation(snap, share)
