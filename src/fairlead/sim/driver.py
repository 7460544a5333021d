"""Runs the scheduler's own decision code against a virtual clock and a virtual cluster."""

import heapq
import math
from collections.abc import Callable
from typing import Any

from fairlead.core import Scheduler
from fairlead.mechanisms.base import Fluid, Mechanism
from fairlead.mechanisms.planner import Planner
from fairlead.model.arrays import IntArray
from fairlead.model.commands import (
    ComputePlan,
    Launch,
    MergeCopies,
    Preempt,
    Renew,
    SetTimer,
)
from fairlead.model.events import (
    Event,
    HistoryChanged,
    JobSubmitted,
    NodeLost,
    NodeRemoved,
    Outcome,
    PlanDue,
    PlanReady,
    RoundEnd,
    TenantChanged,
)
from fairlead.sim.cluster.virtual_cluster import VirtualCluster
from fairlead.sim.fluid import run_fluid
from fairlead.sim.gc_tuning import infrequent_gc
from fairlead.sim.physics.true_speeds import Truth
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario

_NODE_LOSS_EVENTS = (NodeLost, NodeRemoved)
_PLANNING = frozenset({PlanDue, PlanReady, RoundEnd})
_MAX_IDLE_PLANS = 1000
"""plans in a row that run nothing, after which none will"""


def simulate(scenario: Scenario) -> tuple[Record, "Scheduler[Any] | None"]:
    """Run a scenario to its end; return what happened and the scheduler's last state."""
    record = Record.of(
        scenario.jobs, len(scenario.whole_cluster.accelerators), intervals=scenario.intervals
    )
    if isinstance(scenario.mechanism, Fluid):
        run_fluid(scenario, record)
        return record, None
    run = _Run(scenario, scenario.mechanism, record)
    with infrequent_gc():
        run.run_to_end()
    run.settle()
    return record, run.scheduler


class _Run:
    """One simulation under way."""

    def __init__(self, scenario: Scenario, mechanism: Mechanism[Any], record: Record) -> None:
        self._scenario = scenario
        self._record = record
        self._planner = Planner(mechanism)
        self._reads_progress = getattr(mechanism, "reads_progress", True)
        beliefs = scenario.believed or scenario.speeds
        self.scheduler: Scheduler[Any] = Scheduler(
            scenario.cluster, beliefs, mechanism, plan_lead_s=scenario.plan_lead_s
        )
        self._reads_measured = getattr(mechanism, "reads_measured", False)
        # Devices are numbered alike from the start: those of later nodes idle until these join.
        whole = scenario.whole_cluster
        truth = Truth(whole, scenario.speeds, scenario.jobs, scenario.physics)
        self._virtual = VirtualCluster(
            whole,
            truth,
            record,
            restore_cost_s=scenario.restore_cost_s,
            checkpoint_s=scenario.checkpoint_s,
        )
        self._timers = {"PlanDue": math.inf, "RoundEnd": math.inf}
        self._departures: list[tuple[float, int, IntArray]] = []
        """(when, number, leases) of those that are about to leave"""
        self._on_event = scenario.on_event
        self._perform: dict[type, Callable[[Any, Event], None]] = {
            Launch: self._launch,
            Renew: self._renew,
            Preempt: self._suspend,
            SetTimer: self._set_timer,
            ComputePlan: self._compute_plan,
            MergeCopies: self._consolidate,
        }
        first, last = scenario.window or (0, len(scenario.jobs))
        self._wanted = slice(first, last)
        self._left = last - first
        self._finished = 0

    def run_to_end(self) -> None:
        """Deliver every event at its time until all jobs of interest have finished."""
        for tenant in self._scenario.tenants:
            self._send(TenantChanged(0.0, tenant))
        if self._scenario.history is not None:
            self._send(HistoryChanged(0.0, self._scenario.history))
        jobs, outside = self._scenario.jobs, list(self._scenario.node_events)
        arrivals = [job.arrival_at for job in jobs] + [math.inf]
        nodes = [event.at for event in outside] + [math.inf]
        timers, virtual, departures = self._timers, self._virtual, self._departures
        arrived = changed = idle_plans = 0
        while self._left:
            finish_at = virtual.next_finish_at()
            leave_at = departures[0][0] if departures else math.inf
            # At one instant: completions, arrivals, nodes, then decisions, so that a decision
            # sees everything that has happened by its time.
            at = min(finish_at, leave_at, arrivals[arrived], nodes[changed], *timers.values())
            if at == math.inf:
                return  # nothing will ever happen again: some jobs cannot run
            if finish_at == at:
                self._job_finished(at)
            elif leave_at == at:
                self._send(virtual.suspend(heapq.heappop(departures)[2], at, "left"))
            elif arrivals[arrived] == at:
                self._send(JobSubmitted(at, jobs[arrived]))
                arrived += 1
            elif nodes[changed] == at:
                self._send(outside[changed])
                changed += 1
            elif timers["PlanDue"] == at:
                timers["PlanDue"] = math.inf
                self._plan(at)
                idle_plans = 0 if len(self.scheduler.leases) else idle_plans + 1
                if (
                    idle_plans > _MAX_IDLE_PLANS
                    and min(arrivals[arrived], nodes[changed]) == math.inf
                ):
                    return  # nobody else will come, and those here are left to wait for ever
            else:
                timers["RoundEnd"] = math.inf
                self._send(RoundEnd(at))

    def settle(self) -> None:
        """Credit jobs that still run with what they have done and held by now."""
        self._virtual.settle(self._record.ended_at)

    def _job_finished(self, at: float) -> None:
        job, ended = self._virtual.finish(at)
        if job is None:  # a copy has made its part, and others go on
            self._send(ended)
            return
        self._finished += 1
        if self._wanted.start <= job < self._wanted.stop:
            self._left -= 1
        self._send(ended)
        if self._scenario.on_progress and self._finished % 64 == 0:
            self._scenario.on_progress(at, self._finished)

    def _plan(self, at: float) -> None:
        progress = self._virtual.progress(at) if self._reads_progress else None
        if progress is not None:
            self._send(progress)
        for report in self._virtual.measured(at) if self._reads_measured else ():
            self._send(report)
        self._send(PlanDue(at))

    def _send(self, event: Event) -> None:
        if self._on_event:
            self._on_event(event)
        if type(event) not in _PLANNING:
            self._record.ended_at = event.at
        for command in self.scheduler.handle(event):
            self._perform[type(command)](command, event)

    def _launch(self, command: Launch, event: Event) -> None:
        self._record.ended_at = event.at
        self._virtual.launch(command, event.at)

    def _renew(self, command: Renew, event: Event) -> None:
        del event
        self._virtual.renew(command)

    def _suspend(self, command: Preempt, event: Event) -> None:
        outcome: Outcome = "lost" if type(event) in _NODE_LOSS_EVENTS else "left"
        if outcome == "lost" or self._virtual.frees_devices_at_once:
            self._send(self._virtual.suspend(command.lease, event.at, outcome))
            return
        for when, leases in self._virtual.leave(command.lease, event.at):
            heapq.heappush(self._departures, (when, int(leases[0]), leases))

    def _set_timer(self, command: SetTimer, event: Event) -> None:
        del event
        self._timers[command.event] = math.inf if command.at is None else command.at

    def _consolidate(self, command: MergeCopies, event: Event) -> None:
        """Do nothing: merging takes no time of its own, copies that start again restore."""
        del command, event

    def _compute_plan(self, command: ComputePlan, event: Event) -> None:
        plan, memory = self._planner.plan(command.snapshot, command.memory)
        self._record.rounds += 1
        self._record.solves += plan.reallocated
        self._send(PlanReady(event.at, command.version, plan, memory))
