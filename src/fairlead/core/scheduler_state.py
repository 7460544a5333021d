"""Mutable state of a scheduler: tables of jobs, leases and nodes, and the current round."""

from collections.abc import Callable
from typing import Generic

import numpy as np

from fairlead.core.jobs import JobTable
from fairlead.core.leases import LeaseTable
from fairlead.core.limits import TenantLimits, has_tenant_limits
from fairlead.core.measured.restart_costs import RestartCosts
from fairlead.core.nodes import NodeTable
from fairlead.core.snapshot_builder import SnapshotBuilder
from fairlead.core.tenant_usage import Usage
from fairlead.mechanisms.base import (
    M,
    Mechanism,
    RefillsByWaitingJobs,
    RefillsFromCandidates,
    SupportsRefill,
)
from fairlead.mechanisms.guarantees import guaranteed_refill
from fairlead.model.arrays import NO_INTS, IntArray
from fairlead.model.capabilities import capabilities_of
from fairlead.model.cluster import Cluster
from fairlead.model.lease import NO_PLACEMENTS, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.measured import MeasuredSpeeds
from fairlead.model.speeds.planned import Trials
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.tenants.weight_scope import WeightScope


class SchedulerState(Generic[M]):
    """The tables that event handlers read and write; ``saved_state`` persists them."""

    def __init__(
        self,
        cluster: Cluster,
        beliefs: SpeedTable,
        mechanism: Mechanism[M],
        *,
        plan_lead_s: float = 0.0,
        weight_scope: WeightScope = "cluster",
        guaranteed_refills: bool = True,
        charges_idle: bool = False,
        guard_refill: Callable[[SupportsRefill], SupportsRefill] | None = None,
    ) -> None:
        self._guard_refill = guard_refill
        self.measured_speeds = MeasuredSpeeds()
        self.restarts = RestartCosts()
        self.trials = Trials()
        """work left and vain rounds, against which the beliefs weigh trials"""
        self.configure(
            beliefs, mechanism, plan_lead_s, weight_scope, guaranteed_refills, charges_idle
        )
        self.reset(cluster)
        self.usage = Usage()
        self.memory: M = mechanism.initial()
        self.changes = 0
        """number of changes so far that a plan should take into account"""
        self.version = 0
        self.planning = False
        self.round_end_at: float | None = None
        self.pending: Plan | None = None
        """a plan to apply when the current round ends"""
        self.waiting: Placements = NO_PLACEMENTS
        """placements of the current plan whose devices are not free yet"""
        self.planned_from = -1
        """``changes`` when the last plan was requested"""
        self.planned_epoch = 0
        """leases from this epoch on started after the last plan was requested"""
        self.left_out: tuple[int, ...] = ()
        """numbers of the jobs that took no part in the last plan, because plans fail with them"""

    def reset(self, cluster: Cluster) -> None:
        """Start with empty tables for a cluster."""
        self.cluster = cluster
        self.jobs = JobTable(cluster, self.beliefs, self.capabilities)
        self.leases = LeaseTable(cluster, self.jobs)
        self.nodes = NodeTable(cluster)
        self.create_snapshot_builder()

    def configure(
        self,
        beliefs: SpeedTable,
        mechanism: Mechanism[M],
        plan_lead_s: float,
        weight_scope: WeightScope,
        guaranteed_refills: bool,
        charges_idle: bool,
    ) -> None:
        """Set the speeds, the mechanism and the scope of weights of later decisions."""
        self.configured_beliefs = beliefs
        self.beliefs = self.believed(beliefs)
        """the configured speeds, and instead of these the measured ones"""
        self.mechanism = mechanism
        self.plan_lead_s = plan_lead_s
        self.weight_scope: WeightScope = weight_scope
        self.guaranteed_refills = guaranteed_refills
        """devices that fall idle in mid-round go to tenants below their guarantee first; logs of
        versions that did not do so are replayed without"""
        self.charges_idle = charges_idle
        """pinned devices count against shares as if all tenants had jobs; for such logs"""
        self.refills: SupportsRefill | None = None
        if isinstance(mechanism, SupportsRefill):
            guard = self._guard_refill
            self.refills = mechanism if guard is None else guard(mechanism)
        self.refill_ignores_running = (
            isinstance(mechanism, RefillsByWaitingJobs) and mechanism.refill_ignores_running
        )
        self._candidate_refills: RefillsFromCandidates | None = None
        if isinstance(self.refills, RefillsFromCandidates):
            self._candidate_refills = self.refills
        self.capabilities = capabilities_of(mechanism)

    def believed(self, configured: SpeedTable) -> SpeedTable:
        """Return configured speeds with the measured ones instead, and with the present trials."""
        return self.measured_speeds.in_place_of(configured).with_trials(self.trials)

    def use_measured_speeds(self) -> None:
        """Believe the measured speeds; the next snapshot has them."""
        self._believe(self.believed(self.configured_beliefs))

    def use_trials(self, trials: Trials) -> None:
        """Weigh trials again; the next snapshot has the speeds at which they break even."""
        self.trials = trials
        self._believe(self.beliefs.with_trials(trials))

    def _believe(self, beliefs: SpeedTable) -> None:
        self.beliefs = beliefs
        self.jobs.use_speeds(beliefs)
        self.create_snapshot_builder()

    def create_snapshot_builder(self) -> None:
        """Take later snapshots from the current tables and beliefs."""
        self.snapshot_builder = SnapshotBuilder(
            self.nodes,
            self.beliefs,
            self.jobs,
            self.leases,
            self.restarts if self.capabilities.reads_restarts else None,
            self.capabilities.reads_measured,
            self.weight_scope,
            charges_idle=self.charges_idle,
        )

    def end_round(self) -> None:
        """Forget the mechanism's memory and the current round; the next round starts now."""
        self.memory, self.planning, self.round_end_at = self.mechanism.initial(), False, None

    def snapshot(
        self, at: float, starts_at: float, hidden: IntArray = NO_INTS, *, pins: bool = True
    ) -> Snapshot:
        """Return active jobs and their devices, time received projected to ``starts_at``.

        ``hidden`` jobs, which must hold nothing, are left out, and so are the jobs and devices of
        pinned leases, unless ``pins`` is False.
        """
        return self.snapshot_builder.snapshot(
            at, starts_at, self.waiting, self.usage, self.changes, hidden, pins=pins
        )

    def refilled(self, at: float, hidden: IntArray, idle: IntArray) -> Placements:
        """Return the mechanism's refill of idle devices; ``hidden`` jobs take no part.

        The snapshot has the waiting jobs alone where these decide, and of them the candidates
        alone where these fill the devices. Guarantees count the devices that tenants hold.
        """
        assert self.refills is not None
        alone = self.refill_ignores_running and not (
            self.guaranteed_refills and any(tenant.guarantee for tenant in self.jobs.tenants)
        )
        chosen = self._refill_from_candidates(at, hidden, idle) if alone else None
        if chosen is not None:
            return chosen
        snap = self._refill_snapshot(at, hidden, only_waiting=alone)
        chosen = self.refills.refill(snap, self.memory, idle)
        return guaranteed_refill(snap, chosen, idle) if self.guaranteed_refills else chosen

    def _refill_from_candidates(
        self, at: float, hidden: IntArray, idle: IntArray
    ) -> Placements | None:
        """Return the refill by the mechanism's candidates; None if others could follow."""
        if self._candidate_refills is None:
            return None
        is_idle = np.zeros(len(self.cluster.accelerators), dtype=bool)
        is_idle[self.cluster.accelerator_of[idle]] = True
        candidates = self._candidate_refills.refill_candidates(self.memory, is_idle)
        if len(candidates) < len(idle):
            return None
        snap = self._refill_snapshot(at, hidden, only_waiting=True, among=candidates)
        return self._candidate_refills.refill_from_candidates(snap, self.memory, idle)

    def _refill_snapshot(
        self, at: float, hidden: IntArray, *, only_waiting: bool, among: IntArray | None = None
    ) -> Snapshot:
        return self.snapshot_builder.snapshot(
            at,
            at,
            self.waiting,
            self.usage,
            self.changes,
            hidden,
            only_waiting=only_waiting,
            among=among,
        )

    def limits(self) -> TenantLimits | None:
        """Return the tenants' limits; None if no tenant has one."""
        if not has_tenant_limits(self.jobs.tenants):
            return None
        return TenantLimits(self.jobs, self.leases, self.cluster)

    def unstartable_jobs(self) -> IntArray:
        """Return the jobs left out of the last plan that hold no devices and wait for none."""
        numbers = np.array(self.left_out, dtype=np.int64)
        unplaced: IntArray = numbers[~self.leases.hold_open(numbers)]
        return np.setdiff1d(unplaced, self.waiting.job)

    def idle_devices(self) -> IntArray:
        """Return the open devices that no lease holds and no placement waits for."""
        idle = self.nodes.is_open & self.leases.free_devices
        idle[self.waiting.device] = False
        return idle.nonzero()[0]
