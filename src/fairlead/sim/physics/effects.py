"""Physical effects of the virtual cluster that make a job slower than the speeds table.

The table holds the speed of a gang on consolidated devices without neighbours. All other effects
are defined here: each has a name, can be switched on or off, and has parameters per workload.
Without physics, the table alone determines speeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self

from fairlead.model.errors import UsageError
from fairlead.sim.physics.measured_leases import MeasuredLease

EFFECTS = ("costs", "locality", "switch", "network", "packing", "memory")
"""effects that can be switched on and off:

- ``costs``: time without progress at starts, resumes, migrations, merges, checkpoints and ends
- ``locality``: gangs across PCIe switches, sockets, nodes and racks
- ``switch``: neighbours on the same PCIe switch
- ``network``: spread gangs that share a node's network card
- ``packing``: jobs on the same devices, where the speeds table has not measured the pair
- ``memory``: jobs that exceed the device memory do not run
"""

OTHER_WORKLOADS = "*"
"""name for all workloads that are not listed"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionCosts:
    """Seconds for which a job holds its devices without making progress."""

    resume_s: float = 0.0
    """to be preempted and restarted on the same node"""
    move_s: float = 0.0
    """in addition to ``resume_s``, if the restart is on another device of the node"""
    hand_over_s: float | None = None
    """to be restarted on another device by a process that was prepared while the plan waited for
    its round; None: moves are not prepared"""
    migrate_s: float = 0.0
    """to be restarted on another node"""
    preload_s: float = 0.0
    """to load for the first start"""
    merge_s: float = 0.0
    """for a copy of a forked job to load the merged state"""
    checkpoint_s: float = 0.0
    """to write one of its regular checkpoints"""
    leave_s: float = 0.0
    """to free the devices after the last step, at completion or preemption; successors wait"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Locality:
    """Fraction of its speed that a gang keeps when it spans …; the widest span counts."""

    switches: float = 1.0
    """several PCIe switches of one socket"""
    sockets: float = 1.0
    """several sockets of one node"""
    nodes: float = 1.0
    """several nodes of one rack; a spread speed in the speeds table takes precedence"""
    racks: float = 1.0
    """several racks"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentionProfile:
    """Contention between a job and its neighbours on a shared resource.

    A job loses ``sensitivity`` × the total load of its neighbours, capped at 1.
    """

    sensitivity: float = 0.0
    load: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPhysics:
    """Parameters of the effects for the jobs of one workload."""

    costs: TransitionCosts = TransitionCosts()
    locality: Locality = Locality()
    switch: ContentionProfile = ContentionProfile()
    network: ContentionProfile = ContentionProfile()
    packed: float = 1.0
    """highest total speed of packed jobs of this workload, relative to one job alone"""
    scaling: float = 1.0
    """exponent of elastic gangs: n times the devices give n ** scaling times the speed"""
    utilization: float | None = None
    """utilization of the devices by one job alone, 0 to 1; a job's own value takes precedence"""
    memory_gib: float | None = None
    """memory needed on every device; a job's own value takes precedence"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Wiring of a node's devices, in order of their numbers."""

    per_switch: int = 2
    """devices on one PCIe switch"""
    per_socket: int = 4
    """devices on one socket"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Physics:
    """Enabled effects and their parameters per workload."""

    effects: frozenset[str] = frozenset(EFFECTS)
    by_workload: Mapping[str, WorkloadPhysics] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """workload → parameters; ``*`` for all others"""
    topology: Topology = Topology()
    leases: Mapping[str, Sequence[MeasuredLease]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """job id → its leases in the real run to be simulated; they override costs and speeds"""

    def __post_init__(self) -> None:
        unknown = sorted(self.effects - set(EFFECTS))
        if unknown:
            raise UsageError(
                f"effects: unknown: {unknown[0]!r}: expected some of {', '.join(EFFECTS)}"
            )

    @classmethod
    def with_costs(
        cls,
        costs: TransitionCosts,
        leases: Mapping[str, Sequence[MeasuredLease]] = MappingProxyType({}),
    ) -> Self:
        """Return physics in which leases of all workloads have these costs, and nothing else.

        ``leases`` of a real run take precedence.
        """
        by_workload = {OTHER_WORKLOADS: WorkloadPhysics(costs=costs)}
        return cls(effects=frozenset({"costs"}), by_workload=by_workload, leases=leases)

    def of(self, workload: str) -> WorkloadPhysics:
        """Return the parameters of a workload."""
        listed = self.by_workload.get(workload)
        return listed if listed is not None else self.by_workload.get(OTHER_WORKLOADS, _PLAIN)

    def without(self, *effects: str) -> "Physics":
        """Return the same physics without some effects."""
        return replace(self, effects=self.effects - set(effects))


_PLAIN = WorkloadPhysics()
