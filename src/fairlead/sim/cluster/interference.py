"""Jobs that slow each other down in the virtual cluster, and what that does to their progress."""

import numpy as np

from fairlead.model.arrays import IntArray
from fairlead.model.commands import Launch
from fairlead.model.lease import SLOTS
from fairlead.sim.cluster.partners import Partners
from fairlead.sim.cluster.progress import JobProgress
from fairlead.sim.cluster.speed_changes import SpeedChanges
from fairlead.sim.physics.true_speeds import Truth

_NO_LEASE = -SLOTS
"""no lease's number, and yet its lower digits name a slot"""


class Sharing:
    """Gives jobs on shared devices, or on one node where neighbours matter, their new speed.

    Costs next to nothing until two jobs share a device for the first time.
    """

    def __init__(
        self, truth: Truth, pace: JobProgress, settling: SpeedChanges, *, checkpoint_s: float
    ) -> None:
        devices = len(truth.cluster.node_of)
        self._truth = truth
        self._laws = truth.laws
        self._crowded = self._laws is not None and self._laws.crowded
        self._pace = pace
        self._settling = settling
        self._checkpoint_s = checkpoint_s
        self._last_on = np.full(devices, _NO_LEASE, dtype=np.int64)
        """device → the lease that started there last; not kept once there are partners"""
        self._partners: Partners | None = None
        """who shares devices, as soon as anybody does, or from the start if neighbours matter"""
        if self._crowded:
            self._partners = Partners(np.full(devices, -1))
        self._affected: set[int] = set()
        """jobs whose partners have changed at this instant, not yet at their new speed"""
        self._affected_at = 0.0

    def start(self, command: Launch, at: float) -> None:
        """Take in jobs that have started."""
        if self._partners is None:
            if not self._is_first_share(command):
                return
            self._partners = Partners(self._job_on())
        self._affected |= self._partners.start(command.on)
        if self._crowded:
            self._affected |= self._near(command.on.device)
        self._affected_at = at

    def end(self, job: IntArray, at: float) -> None:
        """Strike out jobs that have ended."""
        if self._partners is None:
            return
        ended = job.tolist()
        if self._crowded:
            held = np.concatenate([self._partners.devices(number) for number in ended])
            self._affected |= self._near(held)
        self._affected |= self._partners.end(ended)
        self._affected -= set(ended)
        self._affected_at = at

    def update_speeds(self) -> None:
        """Let jobs whose partners have changed go on at their new speed, their steps kept.

        Partners leave and others come at the same instant, so this waits for both.
        """
        if not self._affected:
            return
        assert self._partners is not None
        pace, partners = self._pace, self._partners
        job = np.array(sorted(self._affected), dtype=np.int64)
        self._affected.clear()
        self._settling.settle(job, self._affected_at)
        for number in job.tolist():
            devices, beside = partners.devices(number), partners.beside(number)
            near = self._neighbours(number, devices, beside)
            pace.rate[number] = self._truth.speed_with(number, devices, beside, near)
            pace.portion[number] = partners.portion(number)
        if self._laws is not None:
            pace.rate[job] *= self._laws.working(job, self._checkpoint_s)
        for number in self._settling.leaving.intersection(job.tolist()):
            pace.rate[number] = 0.0
        pace.finish_at[job] = pace.works_from[job] + pace.time_left(job)
        pace.expect(job, pace.until)

    def _is_first_share(self, command: Launch) -> bool:
        """Tell whether a device gets a second job, for the first time; else note who starts."""
        units, last = command.on, self._last_on
        device = units.device
        lease = command.lease if len(device) == len(units) else command.lease.repeat(units.size)
        if command.apart:
            last[device] = lease
            return False
        before = last[device]
        if np.count_nonzero(self._pace.lease[self._pace.jobs_of(before)] == before):
            return True
        last[device] = lease
        if not np.count_nonzero(last[device] != lease):
            return False
        last[device] = before
        return True

    def _job_on(self) -> IntArray:
        """Return devices → job that held it before this launch, -1 for none."""
        job = self._pace.jobs_of(self._last_on)
        return np.where(self._pace.lease[job] == self._last_on, job, -1)

    def _near(self, devices: IntArray) -> set[int]:
        """Return the jobs on the nodes of these devices."""
        assert self._laws is not None
        assert self._partners is not None
        return self._partners.near(self._laws.around(devices))

    def _neighbours(
        self, job: int, devices: IntArray, beside: list[int]
    ) -> list[tuple[int, IntArray]]:
        """Return the jobs on other devices of the same nodes, with their devices."""
        if not self._crowded:
            return []
        assert self._partners is not None
        near = self._near(devices) - {job, *beside}
        return [(other, self._partners.devices(other)) for other in sorted(near)]
