"""The physics of the virtual cluster: all that makes a job slower than its row of the speeds.

The table says how fast a whole gang runs on good devices with nobody near. Everything else is
here, in one place: each effect by its name, each to be switched on or off, with what it is for
each workload. Without physics the table alone decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from fairlead.model.errors import UsageError

EFFECTS = ("costs", "locality", "switch", "network", "packing", "memory")
"""the effects that can be switched:

- ``costs``: time without progress at starts, resumes, migrations, merges, checkpoints and ends
- ``locality``: gangs across PCIe switches, sockets, nodes and racks
- ``switch``: neighbours on the same PCIe switch
- ``network``: spread gangs that share a node's network card
- ``packing``: jobs on the same devices, where the speeds table has not measured the pair
- ``memory``: what does not fit does not run
"""

OTHERS = "*"
"""stands for all workloads not listed"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds for which a job holds its devices without making progress."""

    resume_s: float = 0.0
    """to be suspended and to go on later on the same node"""
    migrate_s: float = 0.0
    """to go on on another node"""
    preload_s: float = 0.0
    """to be loaded for its very first start"""
    merge_s: float = 0.0
    """for a copy of a forked job to load what the copies have merged"""
    checkpoint_s: float = 0.0
    """to write one of its regular checkpoints"""
    leave_s: float = 0.0
    """to give up its devices after its last step, done or told to leave; others wait for that"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Locality:
    """The part of its speed that a gang keeps when its devices are ...; the worst one counts."""

    switches: float = 1.0
    """on several PCIe switches of one socket"""
    sockets: float = 1.0
    """on several sockets of one node"""
    nodes: float = 1.0
    """on several nodes of one rack; where the speeds table has a spread speed, that holds"""
    racks: float = 1.0
    """in several racks"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """How a job and its neighbours disturb each other on something that they share.

    A job loses ``sensitivity`` × the loads of all its neighbours, which count 1 at most.
    """

    sensitivity: float = 0.0
    load: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPhysics:
    """What physics does to the jobs of one workload."""

    costs: Costs = Costs()
    locality: Locality = Locality()
    switch: Contention = Contention()
    network: Contention = Contention()
    packed: float = 1.0
    """the most that jobs like this one, packed on one device, reach of the speed of one alone"""
    scaling: float = 1.0
    """an elastic gang of n times its size runs n to this power as fast"""
    utilization: float | None = None
    """how busy one alone keeps its devices, 0 to 1, where the job does not say so itself"""
    memory_gib: float | None = None
    """what it needs on every device, where the job does not say so itself"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """How the devices of a node are wired, in their order."""

    per_switch: int = 2
    """devices on one PCIe switch"""
    per_socket: int = 4
    """devices on one socket"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Physics:
    """The effects that are switched on, and what they are for each workload."""

    effects: frozenset[str] = frozenset(EFFECTS)
    natures: Mapping[str, WorkloadPhysics] = field(default_factory=lambda: MappingProxyType({}))
    """workload → what physics does to it; ``*`` for all others"""
    topology: Topology = Topology()

    def __post_init__(self) -> None:
        unknown = sorted(self.effects - set(EFFECTS))
        if unknown:
            raise UsageError(f"no effect is called {unknown[0]!r}; there are {', '.join(EFFECTS)}")

    def of(self, workload: str) -> WorkloadPhysics:
        """Return what physics does to jobs of a workload."""
        found = self.natures.get(workload)
        return found if found is not None else self.natures.get(OTHERS, _PLAIN)

    def without(self, *effects: str) -> "Physics":
        """Return the same physics with some effects switched off."""
        return replace(self, effects=self.effects - set(effects))


_PLAIN = WorkloadPhysics()
