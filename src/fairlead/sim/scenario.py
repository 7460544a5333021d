"""Scenario: the complete input of a simulation."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from fairlead.mechanisms.base import FluidMechanism, Mechanism
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster
from fairlead.model.events import Event, NodeAdded, NodeEvent, SpeedMeasured
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.submission.skipped_job import SkippedJob
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.usage_decay import History

if TYPE_CHECKING:
    from fairlead.sim.physics.effects import Physics


@dataclass(frozen=True, slots=True)
class Learning:
    """Measurement of speeds while jobs run."""

    noise: float = 0.0
    """standard deviation of the logarithm of a measured speed"""
    seed: int = 0


class Reviewer(Protocol):
    """Changes jobs during a simulation, as users and searches do on a live cluster."""

    period_s: float
    """seconds between two reviews"""
    held: Collection[str]
    """ids of jobs that arrive held"""

    def review(self, at: float, steps: FloatArray) -> Sequence[Event] | None:
        """Return changes of jobs in view of the steps of all jobs; None ends the simulation."""
        ...


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Everything that determines a simulation's result."""

    cluster: Cluster
    speeds: SpeedTable
    jobs: Sequence[Job]
    """in order of arrival"""
    skipped: Sequence[SkippedJob] = ()
    """jobs of the trace that were left out, since they can never run"""
    mechanism: "Mechanism[Any] | FluidMechanism"
    believed: SpeedTable | None = None
    """speeds that decisions use; None: the true speeds"""
    learning: Learning | None = None
    """noise of the measured speeds that change ``believed``; None: nothing is measured"""
    measured: Sequence[SpeedMeasured] = ()
    """speeds that a real run measured, in order of time, believed from then on"""
    tenants: Sequence[Tenant] = ()
    history: History | None = None
    """effect of past usage on weights"""
    plan_lead_s: float = 0.0
    """seconds between the computation of a plan and its round, as on a live cluster"""
    plan_s: float = 0.0
    """seconds that a plan takes to compute, as on a live cluster"""
    protect_starts: bool = False
    """whether leases keep their devices, as on a live cluster, until they have trained for as
    long as their start took"""
    parks: bool = False
    """whether preempted jobs get the devices back that they left if equal ones are due to them, as
    parked processes do on a live cluster"""
    restore_cost_s: float = 0.0
    checkpoint_s: float = 3600.0
    physics: "Physics | None" = None
    """effects that make jobs slower than the speeds table; None: no effects"""
    node_events: Sequence[NodeEvent] = ()
    window: tuple[int, int] | None = None
    """indices (first, last + 1) of the jobs whose completion ends the simulation"""
    intervals: bool = False
    """whether to record every lease, for timelines"""
    reviewer: Reviewer | None = None
    """changes jobs while the simulation runs; its last review comes at the end"""
    on_event: Callable[[Event], None] | None = field(default=None, compare=False)
    """called with every event before the scheduler handles it"""
    on_progress: Callable[[float, int], None] | None = field(default=None, compare=False)
    """called regularly with the virtual time and the number of finished jobs"""

    @property
    def other_events(self) -> Sequence[Event]:
        """Changes of nodes and measured speeds, in order of time."""
        events: list[NodeEvent | SpeedMeasured] = [*self.node_events, *self.measured]
        return sorted(events, key=lambda event: event.at)

    @property
    def whole_cluster(self) -> Cluster:
        """The cluster including all nodes that join later."""
        cluster = self.cluster
        for event in self.node_events:
            if isinstance(event, NodeAdded):
                cluster = cluster.with_node(event.node)
        return cluster
