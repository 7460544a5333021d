"""What a decision is made from."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.instance import Pair
from fairlead.model.job import Tenant
from fairlead.model.speeds import SpeedTable


@dataclass(frozen=True, slots=True, eq=False)
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


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The jobs and devices as the scheduler believes them to be when its plan will start.

    Rows of the job columns are the unfinished jobs, in order of submission; ``job`` numbers
    them through the scheduler's life. Time received is projected to ``starts_at``, as if
    running units went on until then.
    """

    starts_at: float
    cluster: Cluster
    capacity: IntArray
    """accelerators → devices on nodes that are up"""
    usable: IntArray
    """the devices on nodes that are up, ascending"""
    tenants: Sequence[Tenant]
    profiles: Profiles
    job: IntArray
    profile: IntArray
    arrival_at: FloatArray
    steps_left: FloatArray
    deadline_at: FloatArray
    """jobs → when it should be done; infinite without a deadline"""
    priority: FloatArray
    received_s: FloatArray
    """jobs × accelerators → seconds for which the job has held devices of each"""
    elapsed_s: FloatArray
    """jobs → seconds since submission"""
    isolated_elapsed_s: FloatArray
    """jobs → seconds its progress so far would have taken it on its own 1/n of the cluster"""
    holds: IntArray
    """lanes × devices → row of the job that holds it, NOBODY for none"""
    ids: Sequence[str] = ()
    """job number → the id its tenant knows it by"""
    changes: int = 0
    """counts what makes an allocation stale: arrivals, ends, lost and returned nodes"""
    speeds: SpeedTable | None = None
    """what else is believed about speeds: placements, partners, other gangs"""
    pairs: Sequence[Pair] = ()
    """measured pairs given for jobs rather than workloads"""
    @property
    def speed(self) -> FloatArray:
        """jobs × accelerators → believed steps per second of the whole gang."""
        return self.profiles.speed[self.profile]

    @property
    def gang(self) -> IntArray:
        """jobs → devices needed at once."""
        return self.profiles.gang[self.profile]

    @property
    def weight(self) -> FloatArray:
        """jobs → entitlement."""
        return self.profiles.weight[self.profile]
