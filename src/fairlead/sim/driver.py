"""Runs the scheduler's own decision code against a virtual clock and a virtual cluster."""

import math
from typing import Any

from fairlead.core import Scheduler
from fairlead.mechanisms.base import Fluid, Mechanism
from fairlead.model.commands import Command, ComputePlan, Launch, Renew, SetTimer, Suspend
from fairlead.model.events import (
    Event,
    JobSubmitted,
    NodeLost,
    PlanDue,
    PlanReady,
    RoundEnd,
)
from fairlead.sim.fluid import run_fluid
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario
from fairlead.sim.truth import Truth
from fairlead.sim.virtual import VirtualCluster


def simulate(scenario: Scenario) -> tuple[Record, "Scheduler[Any] | None"]:
    """Run a scenario to its end; return what happened and the scheduler's last state."""
    record = Record.of(
        scenario.jobs, len(scenario.cluster.accelerators), intervals=scenario.intervals
    )
    if isinstance(scenario.mechanism, Fluid):
        run_fluid(scenario, record)
        return record, None
    run = _Run(scenario, scenario.mechanism, record)
    run.to_the_end()
    return record, run.scheduler


class _Run:
    """One simulation under way."""

    def __init__(self, scenario: Scenario, mechanism: Mechanism[Any], record: Record) -> None:
        self._scenario = scenario
        self._record = record
        self._mechanism = mechanism
        self._reads_progress = getattr(mechanism, "reads_progress", True)
        beliefs = scenario.believed or scenario.speeds
        self.scheduler: Scheduler[Any] = Scheduler(scenario.cluster, beliefs, mechanism)
        for tenant in scenario.tenants:
            self.scheduler.jobs.set_tenant(tenant)
        truth = Truth(scenario.cluster, scenario.speeds, scenario.jobs)
        self._virtual = VirtualCluster(
            scenario.cluster,
            truth,
            record,
            restore_cost_s=scenario.restore_cost_s,
            checkpoint_s=scenario.checkpoint_s,
        )
        self._timers = {"PlanDue": math.inf, "RoundEnd": math.inf}
        first, last = scenario.window or (0, len(scenario.jobs))
        self._wanted = slice(first, last)
        self._left = last - first
        self._finished = 0

    def to_the_end(self) -> None:
        """Deliver every event at its time until all jobs of interest have finished."""
        jobs, outside = self._scenario.jobs, list(self._scenario.node_events)
        arrivals = [job.arrival_at for job in jobs] + [math.inf]
        nodes = [event.at for event in outside] + [math.inf]
        timers, virtual = self._timers, self._virtual
        arrived = changed = 0
        while self._left:
            finish_at = virtual.next_finish_at()
            # At one instant: completions, arrivals, nodes, then decisions, so that a decision
            # sees everything that has happened by its time.
            at = min(finish_at, arrivals[arrived], nodes[changed], *timers.values())
            if finish_at == at:
                self._job_finished(at)
            elif arrivals[arrived] == at:
                self._send(JobSubmitted(at, jobs[arrived]))
                arrived += 1
            elif nodes[changed] == at:
                self._send(outside[changed])
                changed += 1
            elif timers["PlanDue"] == at:
                timers["PlanDue"] = math.inf
                self._plan(at)
            elif timers["RoundEnd"] == at:
                timers["RoundEnd"] = math.inf
                self._send(RoundEnd(at))
            else:
                return  # nothing will ever happen again: some jobs cannot run

    def _job_finished(self, at: float) -> None:
        job, ended = self._virtual.finish(at)
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
        self._send(PlanDue(at))

    def _send(self, event: Event) -> None:
        if self._scenario.on_event:
            self._scenario.on_event(event)
        for command in self.scheduler.handle(event):
            self._perform(command, event)

    def _perform(self, command: Command, event: Event) -> None:
        match command:
            case Launch():
                self._virtual.launch(command, event.at)
            case Renew():
                self._virtual.renew(command)
            case Suspend():
                lost = isinstance(event, NodeLost)
                ended = self._virtual.suspend(command.lease, event.at, "lost" if lost else "left")
                self._send(ended)
            case SetTimer():
                self._timers[command.event] = math.inf if command.at is None else command.at
            case ComputePlan():
                plan, memory = self._mechanism.plan(command.snapshot, command.memory)
                self._record.rounds += 1
                self._record.solves += plan.reallocated
                self._send(PlanReady(event.at, command.version, plan, memory))
            case _:
                raise NotImplementedError(type(command).__name__)
