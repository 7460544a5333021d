"""What a simulation is asked to do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.mechanisms.base import Fluid, Mechanism
from fairlead.model.cluster import Cluster
from fairlead.model.events import Event, NodeAdded, NodeEvent
from fairlead.model.job import Job, Tenant
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.tenants.usage_decay import History
from fairlead.sim.physics.effects import Physics


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """All that a simulation's result depends on."""

    cluster: Cluster
    speeds: SpeedTable
    jobs: Sequence[Job]
    """in order of arrival"""
    mechanism: "Mechanism[Any] | Fluid"
    believed: SpeedTable | None = None
    """what the scheduler thinks the speeds are; None: it knows the true ones"""
    tenants: Sequence[Tenant] = ()
    history: History | None = None
    """how past use moves weights"""
    plan_lead_s: float = 0.0
    """how long before a round ends the next plan is made, as a live scheduler must"""
    restore_cost_s: float = 0.0
    checkpoint_s: float = 3600.0
    physics: Physics | None = None
    """what else makes jobs slower than the speeds say; None: nothing"""
    node_events: Sequence[NodeEvent] = ()
    window: tuple[int, int] | None = None
    """stop when the jobs with these indices (first, last + 1) have finished"""
    intervals: bool = False
    """note every lease, for timelines"""
    on_event: Callable[[Event], None] | None = field(default=None, compare=False)
    """told of every event before the scheduler takes it in"""
    on_progress: Callable[[float, int], None] | None = field(default=None, compare=False)
    """told the virtual time and the number of finished jobs now and then"""

    @property
    def whole_cluster(self) -> Cluster:
        """The cluster with all nodes that join in the course of time."""
        cluster = self.cluster
        for event in self.node_events:
            if isinstance(event, NodeAdded):
                cluster = cluster.with_node(event.node)
        return cluster
