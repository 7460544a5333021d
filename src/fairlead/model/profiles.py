"""Profiles: the properties that alike jobs share."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray

_ALIKE_DIGITS = 10
"""decimals to which equal relative speeds agree"""


@dataclass(frozen=True, eq=False)
class Profiles:
    """The shared properties of jobs: everything but their identity and progress.

    ``speed`` is profiles × accelerators, in believed steps per second; 0 where the profile
    cannot or may not run. The other columns have one entry a profile.
    """

    speed: FloatArray
    gang: IntArray
    weight: FloatArray
    tenant: IntArray
    workload: Sequence[str] = ()
    min_gang: IntArray | None = None
    """minimum of devices of an elastic gang; None: all gangs are fixed"""
    max_gang: IntArray | None = None
    """maximum of devices of an elastic gang; None: all gangs are fixed"""
    member: FloatArray | None = None
    """profiles × accelerators → steps per second of a gang whose slowest member is on it, however
    many devices there are; None: gangs are not mixed"""
    gangs: IntArray | None = None
    """profiles × accelerators → devices needed at once there; None: ``gang`` on all of them"""
    across_tenants: BoolArray | None = None
    """profiles → its weight and priority count against the jobs of all tenants; None: of none"""
    search: IntArray | None = None
    """profiles → number of the hyperparameter search its jobs are part of, ABSENT for none; None:
    no job is part of one"""
    memory_gib: FloatArray | None = None
    """profiles → memory of a device that its jobs need, 0 where undeclared; None: none declares
    any"""
    max_copies: IntArray | None = None
    """profiles → copies that its jobs declare, 0 where undeclared; None: none declares any"""
    open_ended: BoolArray | None = None
    """profiles → whether its jobs declare no steps; None: all declare them"""

    @cached_property
    def content(self) -> tuple[bytes, ...]:
        """Bytes of speeds, gangs and weights; policies solve profiles with equal bytes alike."""
        gangs = b"" if self.gangs is None else self.gangs.tobytes()
        return self.speed.tobytes(), self.gang.tobytes(), self.weight.tobytes(), gangs

    @cached_property
    def gang_on(self) -> IntArray:
        """profiles × accelerators → devices needed at once there; × 1 where all are alike."""
        return self.gang[:, None] if self.gangs is None else self.gangs

    def on_all_devices(self, capacity: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return profiles → gangs that fit side by side on all devices, and their speed together.

        Computed once for a capacity: reports of progress ask for it every round.
        """
        key = capacity.tobytes()
        known = self._on_all_devices.get(key)
        if known is None:
            gang = self.gang_on
            gangs = np.where((self.speed > 0) & (gang <= capacity), capacity / gang, 0.0)
            known = gangs.sum(axis=1), (gangs * self.speed).sum(axis=1)
            self._on_all_devices.clear()  # another thread may have another capacity
            self._on_all_devices[key] = known
        return known

    @cached_property
    def _on_all_devices(self) -> dict[bytes, tuple[FloatArray, FloatArray]]:
        return {}

    @cached_property
    def gang_speed(self) -> FloatArray:
        """profiles × accelerators → ``speed`` scaled to ``gang`` devices.

        It compares the devices of different accelerators.
        """
        if self.gangs is None:
            return self.speed
        speed: FloatArray = self.speed * (self.gang[:, None] / self.gangs)
        return speed

    @property
    def member_speed(self) -> FloatArray:
        """``member`` where gangs may be mixed, else ``speed``."""
        return self.speed if self.member is None else self.member

    @cached_property
    def alike(self) -> IntArray:
        """profiles → the first of the same tenant and gang with the same relative speeds."""
        best = self.speed.max(axis=1, keepdims=True)
        shape = np.divide(self.speed, best, out=np.zeros_like(self.speed), where=best > 0)
        rows = np.column_stack([self.tenant, self.gang, shape.round(_ALIKE_DIGITS)])
        _, first, index = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return first[index.ravel()]

    @cached_property
    def single(self) -> bool:
        """Whether every job needs just one device."""
        return self.gangs is None and bool((self.gang == 1).all())
