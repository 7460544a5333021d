"""The scheduler proper: events in, commands out, nothing performed, no clock, no solver."""

import math
from collections.abc import Callable
from typing import Any, Generic, cast

import numpy as np

from fairlead.core.copies import made_all_steps, merge_ended_copies, record_copy_steps
from fairlead.core.jobs import JobState, JobTable
from fairlead.core.leases import LeaseTable
from fairlead.core.limits import Limits, has_tenant_limits
from fairlead.core.nodes import Nodes
from fairlead.core.plan_fitting import fitted
from fairlead.core.snapshot_builder import SnapshotBuilder
from fairlead.core.tenant_usage import Usage
from fairlead.mechanisms.base import M, Mechanism, SupportsRefill, gang_capabilities
from fairlead.model import events as ev
from fairlead.model.arrays import NO_INTS, BoolArray, FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.commands import (
    Command,
    ComputePlan,
    Launch,
    MergeCopies,
    Preempt,
    Renew,
    SetTimer,
)
from fairlead.model.lease import NO_PLACEMENTS, SLOTS, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedTable


class Scheduler(Generic[M]):
    """Keeps the jobs, leases and the round, and turns each event into commands.

    A round runs from the application of a plan to its ``until``. ``plan_lead_s`` before that
    the next plan is asked for, so that leases whose devices stay the same are renewed in time;
    a plan that comes too late finds everything still running (the interim plan).
    """

    def __init__(
        self,
        cluster: Cluster,
        beliefs: SpeedTable,
        mechanism: Mechanism[M],
        *,
        plan_lead_s: float = 0.0,
    ) -> None:
        self._configure(beliefs, mechanism, plan_lead_s)
        self.begin(cluster)
        self.usage = Usage()
        self.memory: M = mechanism.initial()
        self.changes = 0
        self.version = 0
        self.planning = False
        self.round_end_at: float | None = None
        self.pending: Plan | None = None
        """a plan that waits for the round to end"""
        self.waiting: Placements = NO_PLACEMENTS
        """what the current plan starts as soon as its devices are free"""
        self.planned_from = -1
        """the count of changes that the plan asked for last will know of"""
        self.planned_epoch = 0
        """leases from this epoch on started after that plan was asked for"""
        self._handlers: dict[type, Callable[[Any], list[Command]]] = {
            ev.JobSubmitted: self._job_submitted,
            ev.JobCancelled: self._job_cancelled,
            ev.JobHeld: self._job_held,
            ev.JobReleased: self._job_released,
            ev.JobFailed: self._job_failed,
            ev.JobChanged: self._job_changed,
            ev.TenantChanged: self._tenant_changed,
            ev.HistoryChanged: self._history_changed,
            ev.Progress: self._progress,
            ev.LeasesEnded: self._leases_ended,
            ev.Measured: self._measured,
            ev.NodeLost: self._node_lost,
            ev.NodeReturned: self._node_returned,
            ev.NodeAdded: self._node_added,
            ev.NodeRemoved: self._node_removed,
            ev.NodeCordoned: self._node_cordoned,
            ev.DevicesTaken: self._devices_taken,
            ev.PlanDue: self._plan_due,
            ev.PlanReady: self._plan_ready,
            ev.RoundEnd: self._round_end,
        }

    def begin(self, cluster: Cluster) -> None:
        """Start with empty tables for a cluster."""
        self.cluster = cluster
        self.jobs = JobTable(cluster, self.beliefs, **gang_capabilities(self.mechanism))
        self.leases = LeaseTable(cluster, self.jobs)
        self.nodes = Nodes(cluster)
        self._look()

    def go_by(self, beliefs: SpeedTable, mechanism: Mechanism[M], plan_lead_s: float) -> None:
        """Go on under another mechanism or with other speeds, with a round that begins now.

        Leases such as only some mechanisms make, packed, forked, mixed or of another size than
        the job's gang, are to leave. Refused whole if a job that has not ended could never run,
        but for those that have already lost all devices that they could run on.
        """
        self.jobs.believe(beliefs, **gang_capabilities(mechanism))
        self._configure(beliefs, mechanism, plan_lead_s)
        self._look()
        self.memory, self.planning, self.round_end_at = mechanism.initial(), False, None
        self.pending, self.waiting = None, NO_PLACEMENTS
        self.changes += 1
        self._suspend(self.leases.nonstandard_slots)

    def _configure(self, beliefs: SpeedTable, mechanism: Mechanism[M], plan_lead_s: float) -> None:
        self.beliefs = beliefs
        self.mechanism = mechanism
        self.plan_lead_s = plan_lead_s
        self._refills = mechanism if isinstance(mechanism, SupportsRefill) else None
        self._reads_progress = getattr(mechanism, "reads_progress", True)
        self._reads_measured = getattr(mechanism, "reads_measured", False)

    def _look(self) -> None:
        self._snapshot_builder = SnapshotBuilder(
            self.nodes, self.beliefs, self.jobs, self.leases, self._reads_measured
        )

    def handle(self, event: ev.Event) -> list[Command]:
        """Take in one event and return what is to be done now; refuse it whole or not at all."""
        return self._handlers[type(event)](event)

    # -- jobs ---------------------------------------------------------------------------------

    def _job_submitted(self, event: ev.JobSubmitted) -> list[Command]:
        self.jobs.add(event.job)
        self.changes += 1
        return self._plan_or_refill(event.at)

    def _job_cancelled(self, event: ev.JobCancelled) -> list[Command]:
        return self._end_job(event.at, event.job_id, JobState.CANCELLED)

    def _job_held(self, event: ev.JobHeld) -> list[Command]:
        return self._end_job(event.at, event.job_id, JobState.HELD)

    def _job_failed(self, event: ev.JobFailed) -> list[Command]:
        return self._end_job(event.at, event.job_id, JobState.FAILED)

    def _end_job(self, at: float, job_id: str, state: JobState) -> list[Command]:
        number = self.jobs.find(job_id)
        self.jobs.end(number, state)
        self.changes += 1
        self.waiting = self.waiting.where(self.waiting.job != number)
        return [*self._suspend(self.leases.of_job(number)), *self._plan_or_refill(at)]

    def _job_released(self, event: ev.JobReleased) -> list[Command]:
        self.jobs.release(self.jobs.find(event.job_id))
        self.changes += 1
        return self._plan_or_refill(event.at)

    def _job_changed(self, event: ev.JobChanged) -> list[Command]:
        self.jobs.change(event.job)
        self.changes += 1
        return []

    def _tenant_changed(self, event: ev.TenantChanged) -> list[Command]:
        self.jobs.set_tenant(event.tenant)
        self.changes += 1
        limits = self._limits()
        if limits:
            self.waiting = self.waiting.where(
                limits.sifted(NO_INTS, NO_PLACEMENTS, self.waiting)[1]
            )
        return []

    def _history_changed(self, event: ev.HistoryChanged) -> list[Command]:
        self.usage = Usage()
        self.usage.history = event.history
        self.usage.counted_at = event.at
        if event.history is not None and len(self.jobs):
            self.usage.set_baseline(self._snapshot_builder.used(event.at, self.usage))
        self.changes += 1
        return []

    # -- what leases report ---------------------------------------------------------------------

    def _progress(self, event: ev.Progress) -> list[Command]:
        slots = self.leases.slots(event.lease)
        job, steps = self.leases.job[slots], event.steps
        if self.leases.own_steps:
            whole = self.leases.copy[slots] == 0
            capacity = self.nodes.capacity
            record_copy_steps(self.jobs, self.leases, slots[~whole], steps[~whole], capacity)
            job, steps = job[whole], steps[whole]
        steps = np.maximum(self.jobs.steps[job], steps)
        self.jobs.advance(job, steps, self.nodes.capacity)
        return []

    def _store_checkpointed_steps(self, job: IntArray, steps: FloatArray) -> None:
        """Note the steps in all that jobs have checkpointed as they left."""
        saved = np.maximum(self.jobs.saved_steps[job], steps)
        if self._reads_progress:
            self.jobs.advance(job, saved, self.nodes.capacity)
        self.jobs.saved_steps[job] = self.jobs.steps[job] = saved

    def _close_copies(self, slots: IntArray, steps: FloatArray) -> list[Command]:
        """Close leases some of which are copies'; have forked jobs without any left merged."""
        leases = self.leases
        job, whole = leases.job[slots], leases.copy[slots] == 0
        merge_ended_copies(self.jobs, leases, slots[~whole], steps[~whole], self.nodes.capacity)
        leases.close(slots)
        self._store_checkpointed_steps(job[whole], steps[whole])
        commands: list[Command] = []
        for number in np.unique(job[~whole]).tolist():
            done = made_all_steps(self.jobs, number)
            if done and not self.jobs.has_ended(number):
                self.jobs.end(number, JobState.FINISHED)
                self.changes += 1
                commands += self._suspend(leases.of_job(number))
            if not len(leases.of_job(number)):
                commands.append(MergeCopies(number))
        return commands

    def _measured(self, event: ev.Measured) -> list[Command]:
        """Keep what a job has measured for mechanisms that read it; beliefs are fixed tables."""
        slot = int(self.leases.slots(np.array([event.lease]))[0])
        if self._reads_measured:
            missing = math.nan
            utilization, memory = event.utilization, event.memory_gib
            report = (
                event.at,
                float(event.lease),
                event.steps_per_s,
                missing if utilization is None else utilization,
                missing if memory is None else memory,
            )
            self.jobs.store_measurement(int(self.leases.job[slot]), report)
        return []

    def _leases_ended(self, event: ev.LeasesEnded) -> list[Command]:
        slots = self.leases.slots(event.lease)
        job = self.leases.job[slots]
        self.leases.credit(slots, job, event.at, self.jobs.numbers)
        commands: list[Command] = []
        changes, vacated = self.changes, NO_INTS
        # Members leave untold when the server was away for longer than their lease.
        told = bool(self.leases.leaving[slots].all())
        if event.outcome != "left" or not told or self._on_lost_nodes(slots):
            self.changes += 1
        else:
            vacated = self._unplanned_devices(slots)
        if self.leases.own_steps:
            commands += self._close_copies(slots, event.steps)
        else:
            self.leases.close(slots)
            self._store_checkpointed_steps(job, event.steps)
        if event.outcome == "finished":
            for number in job.tolist():
                # A job cancelled while it made its last step, or finished by another copy, has
                # ended already.
                if not self.jobs.has_ended(number):
                    self.jobs.end(number, JobState.FINISHED)
                    commands += self._suspend(self.leases.of_job(number))
        if len(self.waiting) and self.changes != changes:
            # Told to move, a job may have finished instead of leaving.
            active = self.jobs.state[self.waiting.job] == JobState.ACTIVE
            self.waiting = self.waiting.where(active)
        commands += self._launch_ready(event.at)
        unclaimed = len(vacated) and np.isin(vacated, self._idle_devices()).any()
        if unclaimed or self.changes != changes:
            commands += self._plan_or_refill(event.at)
        return commands

    def _unplanned_devices(self, slots: IntArray) -> IntArray:
        """Return the devices of leases about to end of which the plan may not know what follows.

        A job that it wanted there may have ended since the plan was asked for.
        """
        if self.changes == self.planned_from:
            return NO_INTS
        held: BoolArray = np.logical_or.reduce(np.isin(self.leases.holder, slots), axis=0)
        return held.nonzero()[0]

    def _on_lost_nodes(self, slots: IntArray) -> bool:
        """Tell whether any of these leases is on a node that is gone: nobody planned their end."""
        if not self.nodes.down:
            return False
        there = self.leases.on_devices(~self.nodes.is_up)
        return bool(np.isin(slots, there).any())

    # -- nodes ----------------------------------------------------------------------------------

    def _node_added(self, event: ev.NodeAdded) -> list[Command]:
        kinds = self.cluster.accelerators
        self.cluster = cluster = self.cluster.with_node(event.node)
        self.nodes.use(cluster)
        self.jobs.use(cluster, self.nodes.lasting)
        self.leases.use(cluster)
        self.changes += 1
        if self.cluster.accelerators == kinds:
            return self._plan_or_refill(event.at)
        # What a mechanism remembers has a column for each accelerator, so it starts anew with a
        # round that begins now; a plan made from the old memory is not waited for.
        self.memory, self.planning, self.round_end_at = self.mechanism.initial(), False, None
        return [SetTimer("PlanDue", event.at), SetTimer("RoundEnd", None)]

    def _node_removed(self, event: ev.NodeRemoved) -> list[Command]:
        self.nodes.remove(event.node)
        self.jobs.expect(self.nodes.lasting)
        return self._preempt_on_lost_nodes()

    def _node_lost(self, event: ev.NodeLost) -> list[Command]:
        self.nodes.lose(event.node)
        return self._preempt_on_lost_nodes()

    def _preempt_on_lost_nodes(self) -> list[Command]:
        self.changes += 1
        gone = ~self.nodes.is_up
        self.waiting = self.waiting.where(~self.waiting.any_device(gone))
        return self._suspend(self.leases.on_devices(gone))

    def _node_returned(self, event: ev.NodeReturned) -> list[Command]:
        self.nodes.take_back(event.node)
        self.changes += 1
        return self._plan_or_refill(event.at)

    def _node_cordoned(self, event: ev.NodeCordoned) -> list[Command]:
        self.nodes.cordon(event.node, event.cordoned)
        return self._replan_after_node_change(event.at)

    def _devices_taken(self, event: ev.DevicesTaken) -> list[Command]:
        self.nodes.take(event.node, event.numbers)
        return self._replan_after_node_change(event.at)

    def _replan_after_node_change(self, at: float) -> list[Command]:
        self.changes += 1
        self.waiting = self.waiting.where(~self.waiting.any_device(~self.nodes.is_open))
        return self._plan_or_refill(at)

    # -- rounds ---------------------------------------------------------------------------------

    def _plan_due(self, event: ev.PlanDue) -> list[Command]:
        if self.round_end_at is None:
            self.pending = None  # the round for which it was made is over
        elif self.pending is not None:
            return []  # it is there already: once it applies, the one after it is asked for
        if len(self.jobs.active) == len(self.nodes.pinned(self.leases)[0]):
            # Nobody is to be scheduled; what runs on cordoned nodes does so until it ends.
            self.round_end_at = None
            return [*self._renew(math.inf), SetTimer("RoundEnd", None)]
        if self.usage.due(event.at):
            used = self._snapshot_builder.used(event.at, self.usage)
            self.changes += self.usage.count(event.at, used, self.jobs.tenants)
        self.version += 1
        self.planning = True
        self.planned_from = self.changes
        self.planned_epoch = self.leases.next_epoch
        starts_at = max(event.at, self.round_end_at or event.at)
        return [ComputePlan(self.version, self.snapshot(event.at, starts_at), self.memory)]

    def _plan_ready(self, event: ev.PlanReady) -> list[Command]:
        if event.version != self.version or not self.planning:
            return []
        self.planning = False
        self.memory = cast(M, event.memory)
        if self.round_end_at is None or event.at >= self.round_end_at:
            return self._apply(event.plan, event.at)
        self.pending = event.plan
        return self._renew(event.plan.until, but=event.plan.stop)

    def _round_end(self, event: ev.RoundEnd) -> list[Command]:
        plan, self.pending = self.pending, None
        # After an outage its own round may be over, too: then jobs would move for nothing.
        if plan is not None and event.at < plan.until:
            return self._apply(plan, event.at)
        if self.planning:
            # Interim plan: what runs goes on until the late plan arrives and is applied at once.
            return self._renew(math.inf)
        self.round_end_at = None
        return self._plan_or_refill(event.at)

    def _apply(self, plan: Plan, at: float) -> list[Command]:
        self.round_end_at = plan.until
        stop, self.waiting = plan.stop, plan.start
        launched = self.leases.next_epoch != self.planned_epoch
        changed = self.changes != self.planned_from
        if launched or changed:
            epoch = self.planned_epoch
            stop, self.waiting = fitted(plan, epoch, self.jobs, self.leases, self.nodes)
        slots = stop & (SLOTS - 1)
        limits, planned = self._limits(), len(self.waiting)
        if limits:
            slots, may = limits.sifted(slots, NO_PLACEMENTS, self.waiting)
            self.waiting = self.waiting.where(may)
        cut = len(self.waiting) < planned
        return [
            *self._suspend(slots),
            *self._renew(plan.until),
            *self._launch_ready(at),
            *(self._refill(at) if cut else ()),
            SetTimer("PlanDue", max(at, plan.wake_at - self.plan_lead_s)),
            SetTimer("RoundEnd", plan.until),
            # Jobs that came while the plan was made are not in it; what it leaves idle is theirs.
            *(self._plan_or_refill(at) if changed else ()),
        ]

    # -- what follows from a change -----------------------------------------------------------

    def _plan_or_refill(self, at: float) -> list[Command]:
        """Start a round if none runs; else let waiting jobs use devices that are idle."""
        if self.round_end_at is None:
            return [SetTimer("PlanDue", at)] if len(self.jobs.active) else []
        if not len(self.leases) and not len(self.waiting):
            # Nothing runs any more, so the round has ended.
            self.round_end_at = None
            return [SetTimer("PlanDue", at), SetTimer("RoundEnd", None)]
        return self._refill(at)

    def _refill(self, at: float) -> list[Command]:
        """Let waiting jobs use devices that are idle, if the mechanism wants that."""
        staying = len(self.leases) - self.leases.leaving_count
        if self._refills is None or staying >= len(self.jobs.active):
            return []
        limits = self._limits()
        hidden = limits.jobs_at_limit(self.waiting) if limits else NO_INTS
        commands: list[Command] = []
        while len(idle := self._idle_devices()):
            more = self._refills.refill(self.snapshot(at, at, hidden), self.memory, idle)
            if self.leases.leaving_count:
                # Two leases of one job at a time would be two writers of one checkpoint.
                more = more.where((self.jobs.lease[more.job] < 0) | (more.copy > 0))
            may = limits.sifted(NO_INTS, self.waiting, more)[1] if limits else None
            refused = NO_INTS if may is None else more.job[~may]
            if may is not None:
                more = more.where(may)
            if len(more):
                commands.append(self._launch(more, at))
            if not len(refused):
                break
            hidden = np.union1d(hidden, refused)
        return commands

    def _limits(self) -> Limits | None:
        """Return what tenants may hold, None where all may hold whatever they are given."""
        if not has_tenant_limits(self.jobs.tenants):
            return None
        return Limits(self.jobs, self.leases, self.cluster)

    def _idle_devices(self) -> IntArray:
        idle = self.nodes.is_open & self.leases.free_devices
        idle[self.waiting.device] = False
        return idle.nonzero()[0]

    def _launch_ready(self, at: float) -> list[Command]:
        """Launch what waits for no lease any more: neither on its devices nor its own last one."""
        units, leases = self.waiting, self.leases
        if not len(units):
            return []
        self.waiting = NO_PLACEMENTS
        if leases.leaving_count:
            blocked = leases.vacating(units)
            # Two leases of one job at a time would be two writers of one checkpoint.
            own = self.jobs.lease[units.job] >= 0
            if not leases.simple:
                # Copies start from what those of the round before have merged.
                own &= units.copy == 0
                own |= np.isin(units.job, leases.job[leases.leaving])
            blocked |= own
            count = np.count_nonzero(blocked)
            if count == len(units):
                self.waiting = units
                return []
            if count:
                self.waiting = units.where(blocked)
                units = units.where(~blocked)
        return [self._launch(units, at)]

    def _launch(self, units: Placements, at: float) -> Launch:
        until = self.round_end_at if self.round_end_at is not None else at
        lease = self.leases.start(units, at)
        return Launch(lease, units, until, apart=not self.leases.packed)

    def _renew(self, until: float, *, but: IntArray = NO_INTS) -> list[Command]:
        leases = self.leases.lease[self.leases.staying]
        if len(but):
            leases = leases[~np.isin(leases, but)]
        return [Renew(leases, until)] if len(leases) else []

    def _suspend(self, slots: IntArray) -> list[Command]:
        if self.leases.leaving_count:
            slots = slots[~self.leases.leaving[slots]]
        if not len(slots):
            return []
        self.leases.leave(slots)
        return [Preempt(self.leases.lease[slots])]

    # -- what a decision sees -------------------------------------------------------------------

    def snapshot(self, at: float, starts_at: float, hidden: IntArray = NO_INTS) -> Snapshot:
        """Return the active jobs and what they hold, time received projected to ``starts_at``.

        Of the jobs that wait some may be hidden.
        """
        return self._snapshot_builder.snapshot(
            at, starts_at, self.waiting, self.usage, self.changes, hidden
        )
