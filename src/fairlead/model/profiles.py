"""What jobs have in common: profiles."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from fairlead.model.arrays import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Profiles:
    """What jobs of one profile have in common: everything but their identity and progress.

    ``speed`` is profiles × accelerators, in believed steps per second; 0 where the profile
    cannot or may not run. The other columns have one entry a profile.
    """

    speed: FloatArray
    gang: IntArray
    weight: FloatArray
    tenant: IntArray
    workload: Sequence[str] = ()
    min_gang: IntArray | None = None
    """the least devices that an elastic gang can do with; None: all gangs are fixed"""
    max_gang: IntArray | None = None
    """the most devices that an elastic gang can use; None: all gangs are fixed"""
    member: FloatArray | None = None
    """profiles × accelerators → steps per second of a gang with this one as its slowest member,
    whether or not there are devices for all of the gang; None: gangs are not mixed"""
    gangs: IntArray | None = None
    """profiles × accelerators → devices needed at once there; None: ``gang`` on all of them"""

    @cached_property
    def content(self) -> tuple[bytes, ...]:
        """The bytes of speeds, gangs and weights: equal for profiles that policies solve alike."""
        gangs = b"" if self.gangs is None else self.gangs.tobytes()
        return self.speed.tobytes(), self.gang.tobytes(), self.weight.tobytes(), gangs

    @cached_property
    def gang_on(self) -> IntArray:
        """Profiles × accelerators, or × 1 where all are alike → devices needed at once there."""
        return self.gang[:, None] if self.gangs is None else self.gangs

    @cached_property
    def gang_speed(self) -> FloatArray:
        """Profiles × accelerators → ``speed`` of as many devices as ``gang``, in proportion.

        What the devices of different accelerators make is compared by it.
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
    def single(self) -> bool:
        """Whether every job needs one device only."""
        return self.gangs is None and bool((self.gang == 1).all())
