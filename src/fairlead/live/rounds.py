"""Rounds in real time: timers for plans and round ends, and the computation of plans."""

import asyncio
import math
from collections.abc import MutableMapping
from typing import Any

import numpy as np
import structlog

from fairlead.core import Scheduler
from fairlead.live.clock import Clock
from fairlead.live.executors import Workers
from fairlead.live.inbox import EventFactory, Inbox
from fairlead.live.plan_recovery import RecoveredPlan, recover_plan, without_jobs
from fairlead.mechanisms.base import Mechanism
from fairlead.mechanisms.planner import Planner
from fairlead.model import commands as cmd
from fairlead.model import events as ev
from fairlead.model.arrays import NO_INTS
from fairlead.model.lease import NO_PLACEMENTS
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot

log = structlog.get_logger("fairlead.live")

_MAX_FAILURES_IN_ROW = 2
"""failed plans in a row from which on the server is not ready"""
_MAX_NAMED_JOBS = 20
"""jobs named in one line of the log"""
_LEFT_OUT = "left out of planning: plans fail with its numbers; change or cancel it"
_PLAN_RETRY_S = 60.0
"""seconds that running leases continue after a plan could not be computed"""


class RoundTimers:
    """Posts ``PlanDue`` and ``RoundEnd`` when the core wants them, and computes plans.

    ``reports`` returns the events that the core should handle before a plan is made. ``messages``
    receives a message for each job that is left out of plans because it makes them fail.
    """

    def __init__(
        self,
        mechanism: Mechanism[Any],
        workers: Workers,
        clock: Clock,
        inbox: Inbox,
        reports: EventFactory,
        messages: MutableMapping[str, str] | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._planner, self._workers = Planner(mechanism), workers
        self._messages = {} if messages is None else messages
        self._clock, self._inbox, self._reports = clock, inbox, reports
        self.decisions_s: list[float] = []
        """computation times of recent plans"""
        self.rounds_s: list[float] = []
        """times from a recent plan's due time until it was persisted"""
        self.plans_failed = 0
        """plans whose first computation failed"""
        self._failures_in_row = 0
        """plans since the last one that was computed, with or without all jobs"""
        self._left_out: dict[int, tuple[float, ...]] = {}
        """jobs that make plans fail → the numbers with which they do"""
        self._due_at: float | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def resume(self, scheduler: Scheduler[Any]) -> None:
        """Set the timers that an earlier server had set."""
        until = scheduler.round_end_at
        if until is not None:
            self.set_timer(cmd.SetTimer("RoundEnd", until))
        if scheduler.pending is None or until is None:
            due_at = 0.0 if until is None else until - scheduler.plan_lead_s
            self.set_timer(cmd.SetTimer("PlanDue", due_at))

    def stop(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()

    def set_timer(self, command: cmd.SetTimer) -> None:
        """Replace an event's timer, or cancel it."""
        before = self._timers.pop(command.event, None)
        if before is not None:
            before.cancel()
        if command.at is None or command.at == math.inf:
            return
        ring = self._plan_due if command.event == "PlanDue" else self._round_end
        delay = max(command.at - self._clock.now(), 0.0)
        self._timers[command.event] = asyncio.get_running_loop().call_later(delay, ring)

    def _plan_due(self) -> None:
        self._due_at = self._clock.now()
        self._inbox.post(lambda at: [*self._reports(at), ev.PlanDue(at)])

    def _round_end(self) -> None:
        self._inbox.post(lambda at: [ev.RoundEnd(at)])

    async def plan(self, command: cmd.ComputePlan) -> None:
        """Compute a plan and submit it."""
        began = self._clock.now()
        snapshot = self._without_left_out(command.snapshot)
        try:
            plan, memory = await self._workers.plan(self._planner.plan, snapshot, command.memory)
            self._failures_in_row = 0
        except Exception as error:
            # One traceback is enough: plans may fail with every event.
            is_first = self.plans_failed == 0
            log.error("plan.failed", version=command.version, error=repr(error), exc_info=is_first)
            self.plans_failed += 1
            plan, memory = await self._recover(snapshot, command.memory)
        self.decisions_s = [*self.decisions_s[-999:], self._clock.now() - began]
        await self._inbox.submit(lambda at: [ev.PlanReady(at, command.version, plan, memory)])
        due_at = began if self._due_at is None else self._due_at
        self.rounds_s = [*self.rounds_s[-999:], self._clock.now() - due_at]

    @property
    def failing(self) -> bool:
        """Whether the last plans could not be computed for any set of jobs."""
        return self._failures_in_row >= _MAX_FAILURES_IN_ROW

    async def _recover(self, snapshot: Snapshot, memory: Any) -> tuple[Plan, Any]:
        """Return a plan without the jobs that make it fail, else one that changes nothing."""
        recovered: RecoveredPlan | None = None
        try:
            recovered = await self._workers.plan(
                recover_plan, lambda: Planner(self._mechanism).plan, snapshot, memory
            )
        except Exception as error:  # the recovery must never stop the driver
            log.error("plan.recovery_failed", error=repr(error))
        self._planner = Planner(self._mechanism)  # the failure may have damaged its solver
        if recovered is None:
            # A failed plan must not stop the cluster: running leases continue for a while.
            self._failures_in_row += 1
            log.error("plan.not_recovered", in_row=self._failures_in_row)
            until = self._clock.now() + _PLAN_RETRY_S
            return Plan(NO_INTS, NO_PLACEMENTS, until, until, False), memory
        self._failures_in_row = 0
        named = [snapshot.ids[number] for number in recovered.left_out]
        log.error("plan.recovered", left_out=len(named), jobs=named[:_MAX_NAMED_JOBS])
        self._messages.update(dict.fromkeys(named, _LEFT_OUT))
        numbers = _numbers_of_jobs(snapshot)
        self._left_out |= {number: numbers[number] for number in recovered.left_out}
        return recovered.plan, recovered.memory

    def _without_left_out(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot without jobs known to make plans fail, until they are changed."""
        if not self._left_out:
            return snapshot
        numbers = _numbers_of_jobs(snapshot)
        self._left_out = {
            job: known for job, known in self._left_out.items() if numbers.get(job) == known
        }
        left_out = np.isin(snapshot.job, list(self._left_out))
        # A snapshot without any job is no problem to solve: such a plan fails, as before.
        if not left_out.any() or left_out.all():
            return snapshot
        return without_jobs(snapshot, (~left_out).nonzero()[0])


def _numbers_of_jobs(snapshot: Snapshot) -> dict[int, tuple[float, ...]]:
    """Return job number → the numbers that its tenant has chosen."""
    columns = (snapshot.profile, snapshot.total_steps, snapshot.deadline_at, snapshot.priority)
    chosen = zip(*(column.tolist() for column in columns), strict=True)
    return dict(zip(snapshot.job.tolist(), chosen, strict=True))
