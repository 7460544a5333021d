"""Rounds in real time: timers for plans and round ends, and the computation of plans."""

import asyncio
import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import structlog

from fairlead.core import Scheduler
from fairlead.live.clock import Clock
from fairlead.live.executors import PlanTimeoutError, Workers
from fairlead.live.inputs.inbox import Inbox
from fairlead.live.planning.guards import PlugInGuard
from fairlead.live.planning.left_out import LeftOutJobs, without
from fairlead.live.planning.recovery import RecoveredPlan, recover_plan
from fairlead.live.scheduling_config import SchedulingConfig
from fairlead.mechanisms.base import HasRounds, Mechanism
from fairlead.model import commands as cmd
from fairlead.model import events as ev
from fairlead.model.arrays import NO_INTS
from fairlead.model.lease import NO_PLACEMENTS
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot

log = structlog.get_logger("fairlead.live")

_EventsAt = Callable[[float], Sequence[ev.Event]]
_MAX_NAMED_JOBS = 20
"""jobs named in one line of the log"""
_PLAN_RETRY_S = 60.0
"""most seconds that running leases continue after a plan could not be computed"""


class RoundTimers:
    """Posts ``PlanDue`` and ``RoundEnd`` when the core wants them, and computes plans.

    ``reports`` returns the events that the core should handle before a plan is made, ``pins``
    those before it is applied. ``adjust`` exchanges equal devices in a computed plan. ``prepare``
    receives each plan once it is persisted. ``round_end_at`` returns the end of the core's round.
    """

    def __init__(
        self,
        mechanism: Mechanism[Any],
        guard: PlugInGuard,
        workers: Workers,
        clock: Clock,
        inbox: Inbox,
        reports: _EventsAt,
        pins: _EventsAt,
        adjust: Callable[[Plan], Plan] = lambda plan: plan,
        prepare: Callable[[Plan], None] = lambda _: None,
        round_end_at: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._guard, self._workers, self.failures = guard, workers, guard.failures
        self._clock, self._inbox = clock, inbox
        self._reports, self._pins = reports, pins
        self._adjust, self._prepare, self._round_end_at = adjust, prepare, round_end_at
        self.decisions_s: list[float] = []
        """computation times of recent plans"""
        self.rounds_s: list[float] = []
        """times from a recent plan's due time until it was persisted"""
        self._due_at: float | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._computing: dict[asyncio.Task[Any], None] = {}
        """tasks of plans that are being computed, or wait for another plan, as an ordered set"""
        self._one_plan = asyncio.Lock()
        self._use_mechanism(mechanism)

    def use_config(self, config: SchedulingConfig) -> None:
        """Plan by another mechanism from now on; plans that are being computed are given up."""
        self.stop()
        for task in self._computing:
            task.cancel()
        self._use_mechanism(config.mechanism)

    def _use_mechanism(self, mechanism: Mechanism[Any]) -> None:
        self._make_planner = partial(self._guard.make_planner, mechanism)
        self._planner = self._make_planner()
        self._left_out = LeftOutJobs()
        round_s = mechanism.round_s if isinstance(mechanism, HasRounds) else math.inf
        self._retry_s = min(round_s, _PLAN_RETRY_S)

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
        while self._timers:
            self._timers.popitem()[1].cancel()

    def set_timer(self, command: cmd.SetTimer) -> None:
        """Replace an event's timer, or cancel it."""
        before = self._timers.pop(command.event, None)
        if before is not None:
            before.cancel()
        if command.at is None or command.at == math.inf:
            return
        loop, delay = asyncio.get_running_loop(), max(command.at - self._clock.now(), 0.0)
        self._timers[command.event] = (
            loop.call_later(delay, self._plan_due, self._round_end_at())
            if command.event == "PlanDue"
            else loop.call_later(delay, self._round_end)
        )

    def _plan_due(self, round_end_at: float | None) -> None:
        """Request a plan, unless a round has begun since it became due in the one of then.

        Jobs that arrive while a plan is computed request another one. Once the former applies, the
        latter would be for the next round, made a whole round before it.
        """
        self._due_at = self._clock.now()

        def make(at: float) -> list[ev.Event]:
            has_begun = self._round_end_at() not in (None, round_end_at)
            return [] if has_begun else [*self._reports(at), ev.PlanDue(at)]

        self._inbox.post(make)

    def _round_end(self) -> None:
        self._inbox.post(lambda at: [*self._pins(at), ev.RoundEnd(at)])

    async def plan(self, command: cmd.ComputePlan) -> None:
        """Compute a plan and submit it, unless another mechanism is used by then."""
        task = asyncio.current_task()
        assert task is not None
        self._computing[task] = None
        task.add_done_callback(self._computing.pop)
        began = self._clock.now()
        make_planner = self._make_planner
        left_out = self._left_out.next_plan(command.snapshot)
        snapshot = without(command.snapshot, left_out)
        if left_out and not len(snapshot.job):
            plan, memory = self._unchanged(), command.memory
        else:
            plan, memory, more = await self._compute(command, snapshot)
            plan, left_out = self._adjust(plan), left_out.union(more)
        self.decisions_s = [*self.decisions_s[-999:], self._clock.now() - began]
        absent = tuple(sorted(left_out))

        def make(at: float) -> list[ev.Event]:
            # The log must not hold the memory of a mechanism that is no longer used.
            if make_planner is not self._make_planner:
                return []
            return [ev.PlanReady(at, command.version, plan, memory, absent)]

        await self._inbox.submit(make)
        self._prepare(plan)
        due_at = began if self._due_at is None else self._due_at
        self.rounds_s = [*self.rounds_s[-999:], self._clock.now() - due_at]

    async def until_planned(self, limit_s: float) -> None:
        """Return once no plan is being computed, at the latest after a time."""
        if self._computing:
            await asyncio.wait(self._computing, timeout=limit_s)

    async def _compute(
        self, command: cmd.ComputePlan, snapshot: Snapshot
    ) -> tuple[Plan, Any, Collection[int]]:
        """Return plan and memory, and the jobs that were left out because they break plans."""
        try:
            # A plan that waited gets the planner of then: one that was given up may still run.
            async with self._one_plan:
                plan, memory = await self._workers.plan(self._planner, snapshot, command.memory)
        except Exception as error:
            self.failures.record(error, version=command.version)
            self._planner = self._make_planner()  # the failure may have damaged its solver
            is_late = isinstance(error, PlanTimeoutError)
            recovered = None if is_late else await self._recover(snapshot, command.memory)
        else:
            self.failures.computed()
            return plan, memory, ()
        if recovered is None:
            self.failures.not_recovered()
            return self._unchanged(), command.memory, ()
        self.failures.recovered()
        self._left_out.add(recovered.left_out, snapshot)
        named = [snapshot.ids[number] for number in recovered.left_out]
        log.error("plan.recovered", left_out=len(named), jobs=named[:_MAX_NAMED_JOBS])
        return recovered.plan or self._unchanged(), recovered.memory, recovered.left_out

    async def _recover(self, snapshot: Snapshot, memory: Any) -> RecoveredPlan | None:
        """Return a plan without the jobs that make it fail; None if planning as such fails."""
        suspects = self._left_out.suspects(snapshot)
        try:
            recovered: RecoveredPlan | None = await self._workers.plan(
                recover_plan, self._make_planner, snapshot, memory, suspects
            )
        except Exception as error:  # the recovery must never stop the driver
            log.error("plan.recovery_failed", error=repr(error))
            return None
        return recovered

    def _unchanged(self) -> Plan:
        """Return a plan that lets running leases continue for a while."""
        until = self._clock.now() + self._retry_s
        return Plan(NO_INTS, NO_PLACEMENTS, until, until, False)
