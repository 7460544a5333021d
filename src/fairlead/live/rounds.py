"""Rounds in real time: when a plan is due, who computes it, and when a round ends."""

import asyncio
import math
from typing import Any

import structlog

from fairlead.core import Scheduler
from fairlead.live.clock import Clock
from fairlead.live.executors import Workers
from fairlead.live.inbox import Make, Queue
from fairlead.mechanisms.base import Mechanism
from fairlead.mechanisms.planner import Planner
from fairlead.model import commands as cmd
from fairlead.model import events as ev
from fairlead.model.arrays import NO_INTS
from fairlead.model.lease import NO_PLACEMENTS
from fairlead.model.plan import Plan

log = structlog.get_logger("fairlead.live")

_PLAN_RETRY_S = 60.0
"""how long what runs goes on when no plan can be had"""


class Rounds:
    """Rings when the core wants it to, and has plans computed."""

    def __init__(
        self, mechanism: Mechanism[Any], workers: Workers, clock: Clock, queue: Queue
    ) -> None:
        self._planner, self._workers = Planner(mechanism), workers
        self._clock, self._queue = clock, queue
        self.decisions_s: list[float] = []
        """what recent plans took to compute"""
        self.rounds_s: list[float] = []
        """what recent rounds took from the time a plan was due until it was written down"""
        self.told: Make = lambda _: []
        """what the core should know before a plan is made"""
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
        """Ring no more."""
        for timer in self._timers.values():
            timer.cancel()

    def set_timer(self, command: cmd.SetTimer) -> None:
        """Ring at this time, and not at the one named before."""
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
        self._queue.put(lambda at: [*self.told(at), ev.PlanDue(at)])

    def _round_end(self) -> None:
        self._queue.put(lambda at: [ev.RoundEnd(at)])

    async def plan(self, command: cmd.ComputePlan) -> None:
        """Have a plan computed and taken in."""
        began = self._clock.now()
        try:
            plan, memory = await self._workers.plan(
                self._planner.plan, command.snapshot, command.memory
            )
        except Exception:
            # A plan that cannot be had must not stop the cluster: what runs goes on for a while.
            log.exception("plan.failed", version=command.version)
            until = self._clock.now() + _PLAN_RETRY_S
            plan, memory = Plan(NO_INTS, NO_PLACEMENTS, until, until, False), command.memory
        self.decisions_s = [*self.decisions_s[-999:], self._clock.now() - began]
        await self._queue.do(lambda at: [ev.PlanReady(at, command.version, plan, memory)])
        due_at = began if self._due_at is None else self._due_at
        self.rounds_s = [*self.rounds_s[-999:], self._clock.now() - due_at]
