"""Interference between jobs in the virtual cluster: packed jobs and neighbours on a node."""

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.commands import Launch
from fairlead.model.lease import SLOT_LIMIT
from fairlead.sim.cluster.partners import DevicePartners
from fairlead.sim.cluster.progress import JobProgress
from fairlead.sim.cluster.speed_changes import SpeedChanges
from fairlead.sim.physics.true_speeds import TrueSpeeds

_NO_LEASE = -SLOT_LIMIT
"""invalid lease number whose lower bits are a valid slot"""


class DeviceSharing:
    """Updates the speeds of jobs on shared devices, and of neighbours on a node under physics.

    Cheap until two jobs share a device for the first time.
    """

    def __init__(
        self,
        true_speeds: TrueSpeeds,
        progress: JobProgress,
        speed_changes: SpeedChanges,
        *,
        checkpoint_s: float,
    ) -> None:
        devices = len(true_speeds.cluster.node_of)
        self._true_speeds = true_speeds
        self._physics = true_speeds.physics_model
        self._neighbours_matter = self._physics is not None and self._physics.has_neighbour_effects
        self._progress = progress
        self._speed_changes = speed_changes
        self._checkpoint_s = checkpoint_s
        self._last_on = np.full(devices, _NO_LEASE, dtype=np.int64)
        """device → last lease started there; not maintained once ``_partners`` exists"""
        self._partners: DevicePartners | None = None
        """jobs on each device; created on the first sharing, or at once if neighbours matter"""
        if self._neighbours_matter:
            self._partners = DevicePartners(np.full(devices, -1), len(progress.total))
        self._affected = np.zeros(len(progress.total) + 1, dtype=bool)  # the last one is nobody
        """job → whether its partners changed at ``_affected_at`` and its speed is out of date"""
        self._affected_at = 0.0

    @property
    def is_unshared(self) -> bool:
        """Whether no two jobs have ever shared a device, and neighbours do not matter."""
        return self._partners is None

    def note_single_leases(self, device: IntArray, lease: IntArray) -> None:
        """Note that these leases hold one device each, and no other lease one of them."""
        self._last_on[device] = lease

    def start(self, command: Launch, at: float) -> None:
        """Add started jobs."""
        if self._partners is None:
            if not self._is_first_share(command):
                return
            self._partners = DevicePartners(self._job_on(), len(self._progress.total))
        self._affected[self._partners.start(command.on)] = True
        if self._neighbours_matter:
            self._affected[self._jobs_near(command.on.device)] = True
        self._affected_at = at

    def end(self, job: IntArray, at: float) -> None:
        """Remove ended jobs."""
        if self._partners is None:
            return
        if self._neighbours_matter:
            self._affected[self._jobs_near(self._partners.devices_of(job))] = True
        self._affected[self._partners.end(job)] = True
        self._affected[job] = False
        self._affected_at = at

    def update_speeds(self) -> None:
        """Set the new speeds of jobs whose partners have changed; their steps so far are kept.

        Called once per instant, because partners leave and others start at the same instant.
        """
        if self._partners is None:
            return
        job = self._affected[:-1].nonzero()[0]
        if not len(job):
            return
        self._affected[job] = False
        progress = self._progress
        self._speed_changes.record_progress(job, self._affected_at)
        progress.rate[job], progress.portion[job] = self._speeds_and_portions(job, self._partners)
        if self._physics is not None:
            progress.rate[job] *= self._physics.working_fraction(job, self._checkpoint_s)
        progress.rate[job[self._speed_changes.leaving[job]]] = 0.0
        progress.finish_at[job] = progress.progress_from[job] + progress.time_left(job)
        progress.schedule_finish(job, progress.until)

    def _speeds_and_portions(
        self, job: IntArray, partners: DevicePartners
    ) -> tuple[FloatArray, FloatArray]:
        """Return jobs → true steps per second, and jobs → devices held, shared ones in part."""
        rate, portion = np.empty(len(job)), np.empty(len(job))
        pair = np.zeros(len(job), dtype=bool)
        if self._physics is None:
            pair, device, partner = partners.in_pairs(job)
            rate[pair] = self._true_speeds.speeds_in_pairs(job[pair], device, partner)
            portion[pair] = np.where(partner < 0, 1.0, 0.5)
        for i in (~pair).nonzero()[0].tolist():
            number = int(job[i])
            devices, sharing = partners.devices(number), partners.partners_of(number)
            near = self._neighbours(number, devices, sharing)
            rate[i] = self._true_speeds.speed_with(number, devices, sharing, near)
            portion[i] = partners.portion(number)
        return rate, portion

    def _is_first_share(self, command: Launch) -> bool:
        """Return whether a device gets its first second job; if not, record the leases."""
        units, last = command.on, self._last_on
        device = units.device
        lease = command.lease if len(device) == len(units) else command.lease.repeat(units.size)
        if command.exclusive:
            last[device] = lease
            return False
        before = last[device]
        if np.count_nonzero(self._progress.lease[self._progress.jobs_of(before)] == before):
            return True
        last[device] = lease
        if not np.count_nonzero(last[device] != lease):
            return False
        last[device] = before
        return True

    def _job_on(self) -> IntArray:
        """Return devices → job that held it before this launch; -1 for none."""
        job = self._progress.jobs_of(self._last_on)
        return np.where(self._progress.lease[job] == self._last_on, job, -1)

    def _jobs_near(self, devices: IntArray) -> IntArray:
        """Return the jobs on the nodes of these devices."""
        assert self._physics is not None
        assert self._partners is not None
        return self._partners.jobs_on(self._physics.devices_on_same_nodes(devices))

    def _neighbours(
        self, job: int, devices: IntArray, partners: list[int]
    ) -> list[tuple[int, IntArray]]:
        """Return the jobs on other devices of the same nodes, with their devices."""
        if not self._neighbours_matter:
            return []
        assert self._partners is not None
        near = self._jobs_near(devices).tolist()
        own = {job, *partners}
        return [(other, self._partners.devices(other)) for other in near if other not in own]
