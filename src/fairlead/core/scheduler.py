"""The scheduler proper: events in, commands out, nothing performed, no clock, no solver."""

import math
from collections.abc import Callable
from typing import Any, Generic, cast

import numpy as np

from fairlead.core.jobs import (
    ARRIVAL,
    DEADLINE,
    FIRST_RECEIVED,
    PRIORITY,
    STEPS,
    TOTAL,
    JobState,
    JobTable,
)
from fairlead.core.leases import LeaseTable
from fairlead.mechanisms.base import M, Mechanism, Refills
from fairlead.model import events as ev
from fairlead.model.arrays import NO_INTS, BoolArray, FloatArray, IntArray
from fairlead.model.cluster import Cluster, capacity
from fairlead.model.commands import Command, ComputePlan, Launch, Renew, SetTimer, Suspend
from fairlead.model.errors import ProtocolError
from fairlead.model.plan import NOBODY, Plan, nobody
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
        self._refills = mechanism if isinstance(mechanism, Refills) else None
        self.jobs = JobTable(cluster, beliefs)
        self.leases = LeaseTable(cluster)
        self.memory: M = mechanism.initial()
        self.down: set[int] = set()
        self.changes = 0
        self.version = 0
        self.planning = False
        self.round_end_at: float | None = None
        self.pending: Plan | None = None
        """a plan that waits for the round to end"""
        self.waiting: IntArray = nobody(len(cluster.node_of))
        """lanes × devices → job of the current plan that waits for its devices to be free"""
        self.waiting_copy: IntArray | None = None
        self.n_waiting = 0
        """devices for which somebody waits"""
        self._planned_from = -1
        """the count of changes that the plan asked for last will know of"""
        self._refresh_devices()
        self._handlers: dict[type, Callable[[Any], list[Command]]] = {
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
        return self._handlers[type(event)](event)

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
        self._drop_waiting(np.array([number]))
        return [*self._suspend(self.leases.of_job(number)), *self._react(event.at)]

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
                commands += self._suspend(self.leases.of_job(number))
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
        self._drop_waiting(self.waiting[:, ~self._is_up])
        return self._suspend(self.leases.on_devices(~self._is_up))

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
        self._is_up: BoolArray = ~np.isin(self.cluster.node_of, list(self.down))
        self._usable = self._is_up.nonzero()[0]

    # -- rounds ---------------------------------------------------------------------------------

    def _plan_due(self, event: ev.PlanDue) -> list[Command]:
        if not len(self.jobs.active):
            self.round_end_at = None
            return [SetTimer("RoundEnd", None)]
        self.version += 1
        self.planning = True
        self._planned_from = self.changes
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
        ends, _ = self.leases.compare(event.plan.holds, event.plan.copy)
        return self._renew_all_but(ends, event.plan.until)

    def _round_end(self, event: ev.RoundEnd) -> list[Command]:
        if self.pending is not None:
            plan, self.pending = self.pending, None
            return self._apply(plan, event.at)
        if self.planning:
            # Interim plan: what runs goes on until the late plan arrives and is applied at once.
            return self._renew_all_but(NO_INTS, math.inf)
        self.round_end_at = None
        return self._react(event.at)

    def _apply(self, plan: Plan, at: float) -> list[Command]:
        self.round_end_at = plan.until
        holds = self._still_valid(plan.holds)
        ends, start = self.leases.compare(holds, plan.copy)
        self._wait(np.where(start, holds, NOBODY), plan.copy)
        return [
            *self._renew_all_but(ends, plan.until),
            *self._suspend(ends),
            *self._launch_ready(at),
            SetTimer("PlanDue", max(at, plan.wake_at - self.plan_lead_s)),
            SetTimer("RoundEnd", plan.until),
        ]

    def _still_valid(self, holds: IntArray) -> IntArray:
        """Drop what became impossible since the plan was asked for: ended jobs, lost devices."""
        if self.changes == self._planned_from:
            return holds
        gone = (holds >= 0) & ((self.jobs.state[holds] != JobState.ACTIVE) | ~self._is_up)
        return np.where(np.isin(holds, holds[gone]), NOBODY, holds) if gone.any() else holds

    # -- what follows from a change -----------------------------------------------------------

    def _react(self, at: float) -> list[Command]:
        """Start a round if none runs; else let waiting jobs use devices that are idle."""
        if self.round_end_at is None:
            return [SetTimer("PlanDue", at)] if len(self.jobs.active) else []
        if not len(self.leases) and not self.n_waiting:
            # Nothing runs any more, so the round has ended.
            self.round_end_at = None
            return [SetTimer("PlanDue", at), SetTimer("RoundEnd", None)]
        if self._refills is None or len(self.leases) >= len(self.jobs.active):
            return []
        idle = self._idle_devices()
        if not len(idle):
            return []
        more = self._refills.refill(self.snapshot(at, at), self.memory, idle)
        start = more != NOBODY
        return self._launch(more, None, start, at) if np.count_nonzero(start) else []

    def _idle_devices(self) -> IntArray:
        idle = self._is_up & (self.leases.holder < 0).all(axis=0)
        if self.n_waiting:
            idle &= (self.waiting < 0).all(axis=0)
        return idle.nonzero()[0]

    def _wait(self, holds: IntArray, copy: IntArray | None) -> None:
        self.waiting = holds
        self.waiting_copy = copy
        self.n_waiting = int(np.count_nonzero(holds != NOBODY))

    def _launch_ready(self, at: float) -> list[Command]:
        """Launch what waits for no lease any more: neither on its devices nor its own last one."""
        if not self.n_waiting:
            return []
        leases, start = self.leases, self.waiting != NOBODY
        if np.count_nonzero(leases.leaving):
            blocked = leases.leaving[leases.holder].any(axis=0)
            held_up = np.zeros(len(self.jobs) + 1, dtype=bool)
            held_up[self.waiting[start & blocked]] = True
            # Two leases of one job at a time would be two writers of one checkpoint.
            held_up[leases.job[leases.leaving]] = True
            start &= ~held_up[self.waiting]
            if not np.count_nonzero(start):
                return []
        commands = self._launch(self.waiting, self.waiting_copy, start, at)
        self._wait(np.where(start, NOBODY, self.waiting), self.waiting_copy)
        return commands

    def _launch(
        self, holds: IntArray, copy: IntArray | None, start: BoolArray, at: float
    ) -> list[Command]:
        until = self.round_end_at if self.round_end_at is not None else at
        return [Launch(self.leases.start(holds, copy, start, at), until)]

    def _renew_all_but(self, ends: IntArray, until: float) -> list[Command]:
        going_on = (self.leases.lease >= 0) & ~self.leases.leaving
        going_on[ends] = False
        leases = self.leases.lease[going_on]
        return [Renew(leases, until)] if len(leases) else []

    def _suspend(self, slots: IntArray) -> list[Command]:
        slots = slots[~self.leases.leaving[slots]]
        if not len(slots):
            return []
        self.leases.leaving[slots] = True
        return [Suspend(self.leases.lease[slots])]

    def _drop_waiting(self, jobs: IntArray) -> None:
        self._wait(np.where(np.isin(self.waiting, jobs), NOBODY, self.waiting), self.waiting_copy)

    def _credit(self, slots: IntArray, at: float) -> None:
        """Add the time held since the last credit to what each job has received."""
        held = at - self.leases.counted_at[slots]
        self._add_received(self.jobs.received_s, self.leases.job[slots], slots, held)
        self.leases.counted_at[slots] = at

    def _add_received(
        self, received: FloatArray, row: IntArray, slots: IntArray, held: FloatArray
    ) -> None:
        if self.leases.simple:
            received[row, self.leases.accelerator[slots]] += held
            return
        for i, slot in enumerate(slots.tolist()):
            # A mixed gang's time counts for each accelerator by the part of the gang on it.
            devices = (self.leases.holder == slot).any(axis=0).nonzero()[0]
            kinds = self.cluster.accelerator_of[devices]
            np.add.at(received, (row[i], kinds), held[i] / len(devices))

    # -- what a decision sees -------------------------------------------------------------------

    def snapshot(self, at: float, starts_at: float) -> Snapshot:
        """Return the active jobs and what they hold, time received projected to ``starts_at``."""
        jobs, leases = self.jobs, self.leases
        active = jobs.active
        rows = jobs.numbers[active]
        slots = leases.staying
        row_of = np.searchsorted(active, leases.job[slots])
        received = rows[:, FIRST_RECEIVED:]
        self._add_received(received, row_of, slots, starts_at - leases.counted_at[slots])
        return Snapshot(
            at=at,
            starts_at=starts_at,
            cluster=self.cluster,
            capacity=self._capacity,
            usable=self._usable,
            tenants=jobs.tenants,
            profiles=jobs.profiles,
            job=active,
            profile=jobs.profile[active],
            arrival_at=rows[:, ARRIVAL],
            total_steps=rows[:, TOTAL],
            steps=rows[:, STEPS],
            deadline_at=rows[:, DEADLINE],
            priority=rows[:, PRIORITY],
            received_s=received,
            holds=self._rows_held(slots, row_of),
            ids=jobs.ids,
            changes=self.changes,
            speeds=self.beliefs,
        )

    def _rows_held(self, slots: IntArray, row_of: IntArray) -> IntArray:
        """Return lanes × devices → row of the job that holds the device or waits for it."""
        row_of_slot = np.full(len(self.leases.lease), NOBODY, dtype=np.int64)
        row_of_slot[slots] = row_of
        held: IntArray = row_of_slot[self.leases.holder]
        if not self.n_waiting:
            return held
        waiting = np.where(
            self.waiting >= 0, np.searchsorted(self.jobs.active, self.waiting), NOBODY
        )
        if len(waiting) == len(held) == 1:
            return np.where(waiting >= 0, waiting, held)
        return np.vstack([held, waiting])
