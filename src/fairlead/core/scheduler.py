"""The scheduler proper: events in, commands out, nothing performed, no clock, no solver."""

import math
from dataclasses import replace
from typing import Generic

import numpy as np

from fairlead.core.jobs import JobState, JobTable
from fairlead.core.leases import MIXED, LeaseTable
from fairlead.mechanisms.base import M, Mechanism, Refills
from fairlead.model import events as ev
from fairlead.model.arrays import IntArray
from fairlead.model.cluster import Cluster, capacity
from fairlead.model.commands import Command, ComputePlan, Launch, Renew, SetTimer, Suspend
from fairlead.model.errors import ProtocolError
from fairlead.model.plan import NOTHING, Assignments, Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds import SpeedTable


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
        self.cluster = cluster
        self.beliefs = beliefs
        self.mechanism = mechanism
        self.plan_lead_s = plan_lead_s
        self.jobs = JobTable(cluster, beliefs)
        self.leases = LeaseTable(cluster)
        self.memory: M = mechanism.initial()
        self.down: set[int] = set()
        self.changes = 0
        self.next_lease = 0
        self.version = 0
        self.planning = False
        self.round_end_at: float | None = None
        self.pending: Plan | None = None
        """a plan that waits for the round to end"""
        self.waiting: Assignments = NOTHING
        """units of the current plan that wait for their devices"""
        self._refresh_devices()
        self._handlers = {
            ev.JobSubmitted: self._job_submitted,
            ev.JobCancelled: self._job_cancelled,
            ev.TenantChanged: self._tenant_changed,
            ev.Progress: self._progress,
            ev.LeasesEnded: self._leases_ended,
            ev.Measured: self._measured,
            ev.NodeLost: self._node_lost,
            ev.NodeReturned: self._node_returned,
            ev.PlanDue: self._plan_due,
            ev.PlanReady: self._plan_ready,
            ev.RoundEnd: self._round_end,
        }

    def handle(self, event: ev.Event) -> list[Command]:
        """Take in one event and return what is to be done now; refuse it whole or not at all."""
        return self._handlers[type(event)](event)  # type: ignore[arg-type]

    # -- jobs ---------------------------------------------------------------------------------

    def _job_submitted(self, event: ev.JobSubmitted) -> list[Command]:
        self.jobs.add(event.job)
        self.changes += 1
        return self._react(event.at)

    def _job_cancelled(self, event: ev.JobCancelled) -> list[Command]:
        number = self.jobs.number.get(event.job_id)
        if number is None:
            raise ProtocolError(f"there is no job {event.job_id!r}")
        self.jobs.end(number, JobState.CANCELLED)
        self.changes += 1
        self._drop_waiting(number)
        return [*self._stop_job(number), *self._react(event.at)]

    def _tenant_changed(self, event: ev.TenantChanged) -> list[Command]:
        self.jobs.set_tenant(event.tenant)
        self.changes += 1
        return []

    # -- what leases report ---------------------------------------------------------------------

    def _progress(self, event: ev.Progress) -> list[Command]:
        job = self.leases.job[self.leases.slots(event.lease)]
        self.jobs.steps[job] = np.maximum(self.jobs.steps[job], event.steps)
        return []

    def _measured(self, event: ev.Measured) -> list[Command]:
        self.leases.slots(np.array([event.lease]))
        return []

    def _leases_ended(self, event: ev.LeasesEnded) -> list[Command]:
        slots = self.leases.slots(event.lease)
        job = self.leases.job[slots]
        self._credit(slots, event.at)
        self.leases.close(slots)
        saved = np.maximum(self.jobs.saved_steps[job], event.steps)
        self.jobs.saved_steps[job] = self.jobs.steps[job] = saved
        commands: list[Command] = []
        if event.outcome == "finished":
            for number in job.tolist():
                self.jobs.end(number, JobState.FINISHED)
                commands += self._stop_job(number)
        commands += self._launch_ready(event.at)
        if event.outcome != "left":
            self.changes += 1
            commands += self._react(event.at)
        return commands

    # -- nodes ----------------------------------------------------------------------------------

    def _node_lost(self, event: ev.NodeLost) -> list[Command]:
        self.down.add(self._node(event.node))
        self._refresh_devices()
        self.changes += 1
        gone = ~np.isin(np.arange(len(self.cluster.node_of)), self._usable)
        self._forget_waiting_on(gone)
        return self._suspend(self.leases.on_devices(gone))

    def _node_returned(self, event: ev.NodeReturned) -> list[Command]:
        self.down.discard(self._node(event.node))
        self._refresh_devices()
        self.changes += 1
        return self._react(event.at)

    def _node(self, name: str) -> int:
        for index, node in enumerate(self.cluster.nodes):
            if node.id == name:
                return index
        raise ProtocolError(f"there is no node {name!r}")

    def _refresh_devices(self) -> None:
        self._capacity = capacity(self.cluster, self.down)
        self._usable = np.flatnonzero(~np.isin(self.cluster.node_of, list(self.down)))

    # -- rounds ---------------------------------------------------------------------------------

    def _plan_due(self, event: ev.PlanDue) -> list[Command]:
        if not len(self.jobs.active):
            self.round_end_at = None
            return [SetTimer("RoundEnd", None)]
        self.version += 1
        self.planning = True
        starts_at = max(event.at, self.round_end_at or event.at)
        return [ComputePlan(self.version, self.snapshot(event.at, starts_at), self.memory)]

    def _plan_ready(self, event: ev.PlanReady) -> list[Command]:
        if event.version != self.version or not self.planning:
            return []
        self.planning = False
        self.memory = event.memory  # type: ignore[assignment]
        if self.round_end_at is None or event.at >= self.round_end_at:
            return self._apply(event.plan, event.at)
        self.pending = event.plan
        return self._renew(self.leases.match(event.plan.assignments), event.plan.until)

    def _round_end(self, event: ev.RoundEnd) -> list[Command]:
        if self.pending is not None:
            plan, self.pending = self.pending, None
            return self._apply(plan, event.at)
        if self.planning:
            # Interim plan: what runs goes on until the late plan arrives and is applied at once.
            return self._renew(self.leases.open, math.inf)
        self.round_end_at = None
        return self._react(event.at)

    def _apply(self, plan: Plan, at: float) -> list[Command]:
        self.round_end_at = plan.until
        units = self._still_valid(plan.assignments)
        matched = self.leases.match(units)
        going_on = np.zeros(len(self.leases.lease), dtype=bool)
        going_on[matched[matched >= 0]] = True
        open_slots = self.leases.open
        stop = open_slots[~(going_on[open_slots] | self.leases.leaving[open_slots])]
        missing = (units.members >= 0) & (matched < 0)
        waiting = replace(units, members=np.where(missing, units.members, -1))
        self.waiting = waiting.where(missing.any(axis=1))
        return [
            *self._renew(matched, plan.until),
            *self._suspend(stop),
            *self._launch_ready(at),
            SetTimer("PlanDue", max(at, plan.wake_at - self.plan_lead_s)),
            SetTimer("RoundEnd", plan.until),
        ]

    def _still_valid(self, units: Assignments) -> Assignments:
        """Drop what became impossible since the plan was asked for: ended jobs, lost devices."""
        if not len(units):
            return units
        ended = (units.members >= 0) & (self.jobs.state[units.members] != JobState.ACTIVE)
        usable = np.zeros(len(self.cluster.node_of), dtype=bool)
        usable[self._usable] = True
        up = np.logical_and.reduceat(usable[units.device], units.start[:-1])
        members = np.where(ended, -1, units.members)
        keep = up & (members >= 0).any(axis=1)
        return replace(units, members=members).where(keep) if not keep.all() else units

    # -- what follows from a change -----------------------------------------------------------

    def _react(self, at: float) -> list[Command]:
        """Start a round if none runs; else let waiting jobs use devices that are idle."""
        if self.round_end_at is None:
            return [SetTimer("PlanDue", at)] if len(self.jobs.active) else []
        if not self.leases and not len(self.waiting):
            # Nothing runs any more, so the round has ended.
            self.round_end_at = None
            return [SetTimer("PlanDue", at), SetTimer("RoundEnd", None)]
        if not isinstance(self.mechanism, Refills):
            return []
        idle = self._idle_devices()
        placed = np.count_nonzero(self.leases.lease >= 0) + len(self.waiting)
        if not len(idle) or placed >= len(self.jobs.active):
            return []
        more = self.mechanism.refill(self.snapshot(at, at), self.memory, idle)
        return [self._launch(more, at)] if len(more) else []

    def _idle_devices(self) -> IntArray:
        free = self.leases.free_devices()
        free[self.waiting.device] = False
        return self._usable[free[self._usable]]

    def _launch_ready(self, at: float) -> list[Command]:
        units = self.waiting
        if not len(units):
            return []
        ready = ~np.logical_or.reduceat(self.leases.blocked()[units.device], units.start[:-1])
        if not ready.any():
            return []
        self.waiting = units.where(~ready)
        return [self._launch(units.where(ready), at)]

    def _launch(self, units: Assignments, at: float) -> Launch:
        lease = self.leases.open_units(units, self.next_lease, at)
        self.next_lease += int(np.count_nonzero(lease >= 0))
        return Launch(units, lease, self.round_end_at if self.round_end_at is not None else at)

    def _renew(self, slots: IntArray, until: float) -> list[Command]:
        slots = slots[slots >= 0]
        return [Renew(self.leases.lease[slots], until)] if len(slots) else []

    def _suspend(self, slots: IntArray) -> list[Command]:
        slots = slots[~self.leases.leaving[slots]]
        self.leases.leaving[slots] = True
        return [Suspend(self.leases.lease[slots])] if len(slots) else []

    def _stop_job(self, number: int) -> list[Command]:
        slots = self.leases.open
        return self._suspend(slots[self.leases.job[slots] == number])

    def _drop_waiting(self, number: int) -> None:
        members = np.where(self.waiting.members == number, -1, self.waiting.members)
        self.waiting = replace(self.waiting, members=members).where((members >= 0).any(axis=1))

    def _forget_waiting_on(self, gone: np.ndarray) -> None:
        if len(self.waiting):
            lost = np.logical_or.reduceat(gone[self.waiting.device], self.waiting.start[:-1])
            self.waiting = self.waiting.where(~lost)

    def _credit(self, slots: IntArray, at: float) -> None:
        """Add the time held since the last credit to what each job has received."""
        held = at - self.leases.counted_at[slots]
        self._add_received(self.jobs.received_s, self.leases.job[slots], slots, held)
        self.leases.counted_at[slots] = at

    def _add_received(
        self, received: np.ndarray, row: IntArray, slots: IntArray, held: np.ndarray
    ) -> None:
        kind = self.leases.accelerator[slots]
        pure = kind != MIXED
        np.add.at(received, (row[pure], kind[pure]), held[pure])
        for i in np.flatnonzero(~pure).tolist():
            # A mixed gang's time counts for each accelerator by the part of the gang on it.
            devices = np.flatnonzero((self.leases.holder == slots[i]).any(axis=0))
            kinds = self.cluster.accelerator_of[devices]
            np.add.at(received, (row[i], kinds), held[i] / len(devices))

    # -- what a decision sees -------------------------------------------------------------------

    def snapshot(self, at: float, starts_at: float) -> Snapshot:
        """Return the active jobs and what they hold, time received projected to ``starts_at``."""
        jobs, leases = self.jobs, self.leases
        active = jobs.active
        slots = leases.open
        slots = slots[~leases.leaving[slots]]
        received = jobs.received_s[active]
        row = np.searchsorted(active, leases.job[slots])
        self._add_received(received, row, slots, starts_at - leases.counted_at[slots])
        return Snapshot(
            starts_at=starts_at,
            cluster=self.cluster,
            capacity=self._capacity,
            usable=self._usable,
            tenants=jobs.tenants,
            profiles=jobs.profiles,
            job=active,
            profile=jobs.profile[active],
            arrival_at=jobs.arrival_at[active],
            steps_left=np.maximum(jobs.total_steps[active] - jobs.steps[active], 1e-9),
            elapsed_s=at - jobs.arrival_at[active],
            isolated_elapsed_s=np.zeros(len(active)),
            deadline_s=jobs.deadline_at[active] - at,
            priority=jobs.priority[active],
            received_s=received,
            running=leases.units(slots).join(self.waiting),
            ids=jobs.ids,
            changes=self.changes,
            speeds=self.beliefs,
        )
