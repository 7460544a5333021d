"""Runs the scheduler's own decision code against a virtual clock and a virtual cluster."""

import heapq
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fairlead.core import Scheduler
from fairlead.core.handlers.repeated_rounds import may_repeat_round, repeat_rounds, time_received
from fairlead.core.launches import renew
from fairlead.core.queries import Queries
from fairlead.mechanisms.base import FluidMechanism, Mechanism, RepeatsRounds, TakesTurns
from fairlead.mechanisms.planner import Planner
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.capabilities import capabilities_of
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
    JobsMeasured,
    JobSubmitted,
    LeasesPinned,
    NodeLost,
    NodeRemoved,
    PlanDue,
    PlanReady,
    RoundEnd,
    TenantChanged,
)
from fairlead.model.lease_outcome import LoggedOutcome
from fairlead.model.snapshot import Snapshot
from fairlead.placement import exchange_devices
from fairlead.sim.cluster.stalls import StallWatch
from fairlead.sim.cluster.virtual_cluster import VirtualCluster
from fairlead.sim.gc_tuning import infrequent_gc
from fairlead.sim.learning import SpeedLearning
from fairlead.sim.physics.true_speeds import TrueSpeeds
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario
from fairlead.sim.turn_rounds import TurnRounds

_NODE_LOSS_EVENTS = (NodeLost, NodeRemoved)
_PLANNING = frozenset({PlanDue, PlanReady, RoundEnd, LeasesPinned})
_MAX_REPEATED, _MAX_TIMES = 512, 1_000_000
"""rounds, and rounds × jobs, taken at once at most, for the memory that their times need"""


def simulate(scenario: Scenario) -> tuple[Record, "Scheduler[Any] | None"]:
    """Run a scenario to its end; return the record and the scheduler in its last state."""
    record = Record.of(
        scenario.jobs, len(scenario.whole_cluster.accelerators), intervals=scenario.intervals
    )
    if isinstance(scenario.mechanism, FluidMechanism):
        from fairlead.sim.fluid import run_fluid  # noqa: PLC0415  # few mechanisms are fluid

        run_fluid(scenario, record)
        return record, None
    run = _Run(scenario, scenario.mechanism, record)
    with infrequent_gc():
        run.run_to_end()
    run.credit_running()
    if scenario.reviewer is not None:
        scenario.reviewer.review(record.ended_at, run.steps(record.ended_at))
    return record, run.scheduler


class _Run:
    """One simulation in progress."""

    def __init__(self, scenario: Scenario, mechanism: Mechanism[Any], record: Record) -> None:
        self._scenario = scenario
        self._record = record
        self._planner = Planner(mechanism)
        capabilities = capabilities_of(mechanism)
        self._reads_progress = capabilities.reads_progress and (
            capabilities.reads_progress_without_deadline or _may_have_deadlines(scenario)
        )
        self._reads_restarts = capabilities.reads_restarts
        beliefs = scenario.believed or scenario.speeds
        self.scheduler: Scheduler[Any] = Scheduler(
            scenario.cluster, beliefs, mechanism, plan_lead_s=scenario.plan_lead_s
        )
        self._queries = Queries(self.scheduler)
        self._reads_measured = capabilities.reads_measured
        learning = scenario.learning
        self._learning = learning and SpeedLearning(self._queries, learning.noise, learning.seed)
        # Device numbers include nodes that join later; their devices idle until then.
        whole = scenario.whole_cluster
        true_speeds = TrueSpeeds(whole, scenario.speeds, scenario.jobs, scenario.physics)
        self._virtual = VirtualCluster(
            whole,
            true_speeds,
            record,
            restore_cost_s=scenario.restore_cost_s,
            checkpoint_s=scenario.checkpoint_s,
        )
        reviewer = scenario.reviewer
        review_at = math.inf if reviewer is None else 0.0
        self._timers = {
            "PlanDue": math.inf,
            "PlanReady": math.inf,
            "RoundEnd": math.inf,
            "Review": review_at,
        }
        self._computed: PlanReady | None = None
        """plan that is ready at its timer"""
        self._held = frozenset(() if reviewer is None else reviewer.held)
        self._departures: list[tuple[float, int, IntArray]] = []
        """heap of (time, first lease, leases): leases that free their devices at this time"""
        self._on_event = scenario.on_event
        watches = self._watches_rounds(scenario)
        self._repeats = None if watches else _repeating(mechanism)
        self._turns = None if watches else self._taking_turns(mechanism)
        self._kept_by_plan: Snapshot | None = None
        """snapshot of the last plan if that left all leases as they were"""
        self._perform: dict[type, Callable[[Any, Event], None]] = {
            Launch: self._launch,
            Renew: self._renew,
            Preempt: self._preempt,
            SetTimer: self._set_timer,
            ComputePlan: self._compute_plan,
            MergeCopies: self._merge_copies,
        }
        first, last = scenario.window or (0, len(scenario.jobs))
        self._wanted = slice(first, last)
        self._left = last - first
        self._finished = 0

    def _taking_turns(self, mechanism: Mechanism[Any]) -> TurnRounds | None:
        scenario = self._scenario
        if scenario.parks or scenario.physics is not None or not _decides_turns(mechanism):
            return None
        assert isinstance(mechanism, TakesTurns)
        return TurnRounds(mechanism, self._planner, self.scheduler, self._virtual, self._record)

    def _watches_rounds(self, scenario: Scenario) -> bool:
        """Return whether more than the scheduler and its measurements follows every round."""
        return bool(
            scenario.on_event
            or self._learning
            or self._reads_progress
            or scenario.protect_starts
            or scenario.plan_s
            or scenario.plan_lead_s
        )

    def run_to_end(self) -> None:
        """Deliver every event at its time until all jobs of the window have finished."""
        self._send_tenants()
        jobs, others = self._scenario.jobs, self._scenario.other_events
        arrivals = [job.arrival_at for job in jobs] + [math.inf]
        others_at = [event.at for event in others] + [math.inf]
        timers, virtual, departures = self._timers, self._virtual, self._departures
        stalls = StallWatch(virtual, self._record, reviewed=self._scenario.reviewer is not None)
        arrived = changed = 0
        while self._left:
            finish_at = virtual.next_finish_at()
            leave_at = departures[0][0] if departures else math.inf
            # At one instant: completions, arrivals, other events, then decisions, so that a
            # decision takes every earlier event into account.
            at = min(finish_at, leave_at, arrivals[arrived], others_at[changed], *timers.values())
            if at == math.inf:
                return  # no event is left: the remaining jobs cannot run
            if finish_at == at:
                self._job_finished(at)
            elif leave_at == at:
                self._send(virtual.end_leases(heapq.heappop(departures)[2], at, "left"))
            elif arrivals[arrived] == at:
                self._send(JobSubmitted(at, jobs[arrived], held=jobs[arrived].id in self._held))
                arrived += 1
            elif others_at[changed] == at:
                self._send(others[changed])
                changed += 1
            elif timers["PlanReady"] == at:
                timers["PlanReady"] = math.inf
                assert self._computed is not None
                self._plan_ready(self._computed)
            elif timers["Review"] == at:
                self._review(at)
            elif timers["PlanDue"] == at:
                timers["PlanDue"] = math.inf
                next_at = min(arrivals[arrived], others_at[changed], leave_at, timers["Review"])
                if not (
                    self._repeat_rounds(at, min(next_at, finish_at))
                    or self._take_turn(at, next_at)
                ):
                    self._plan(at)
                more_at = min(arrivals[arrived], others_at[changed])
                if stalls.is_over(at, len(self.scheduler.leases), more_at):
                    return
            else:
                timers["RoundEnd"] = math.inf
                self._protect_starts(at)
                self._send(RoundEnd(at))

    def _send_tenants(self) -> None:
        for tenant in self._scenario.tenants:
            self._send(TenantChanged(0.0, tenant))
        if self._scenario.history is not None:
            self._send(HistoryChanged(0.0, self._scenario.history))

    def credit_running(self) -> None:
        """Credit running jobs with their steps and device time so far."""
        self._virtual.credit_running(self._record.ended_at)

    def steps(self, at: float) -> FloatArray:
        """Return jobs → steps that it has made."""
        return self._virtual.steps(at)

    def _review(self, at: float) -> None:
        """Send the reviewer's changes of jobs, or end the simulation."""
        reviewer = self._scenario.reviewer
        assert reviewer is not None
        changes = reviewer.review(at, self.steps(at))
        if changes is None:
            self._record.ended_at = at
            self._left = 0
            return
        for change in changes:
            self._send(change)
        self._timers["Review"] = at + reviewer.period_s

    def _job_finished(self, at: float) -> None:
        job, ended = self._virtual.finish(at)
        if job is None:  # a copy has made its steps while other copies still run
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
        if self._reads_measured or self._learning:
            self._report(self._virtual.measured(at))
        self._protect_starts(at)
        self._send(PlanDue(at))

    def _repeat_rounds(self, at: float, next_event_at: float) -> bool:
        """Take at once the rounds before the next event, if all of them leave jobs where they are.

        Return whether there are any. Each of them would send its measurements and request a plan.
        """
        snap, self._kept_by_plan = self._kept_by_plan, None
        if snap is None or not self._repeats or not may_repeat_round(self.scheduler):
            return False
        round_s = self._repeats.round_s
        until = min(next_event_at, self._virtual.first_possible_finish_at())
        if not at + round_s < until:
            return False
        memory_after = self._repeats.repeated_rounds(snap, self.scheduler.memory)
        if memory_after is None:
            return False
        most = min(_MAX_REPEATED, _MAX_TIMES // len(snap.job))
        rounds = int(min((until - at) / round_s, most)) + 1
        # One by one: a sum is not the product to the last bit.
        starts_at = np.add.accumulate(np.array([at] + [round_s] * rounds))
        starts_at = starts_at[: int(starts_at.searchsorted(until))]
        count, memory = memory_after(starts_at, time_received(self.scheduler, starts_at))
        if not count:
            return False
        starts_at = starts_at[:count]
        end = float(starts_at[-1]) + round_s
        repeat_rounds(self.scheduler, starts_at, end, memory)
        for command in renew(self.scheduler, end):
            self._perform[type(command)](command, PlanDue(float(starts_at[-1])))
        if self._reads_measured:
            self._record.ended_at = float(starts_at[-1])
        self._record.rounds += count
        self._timers["PlanDue"] = self._timers["RoundEnd"] = end
        self._kept_by_plan = snap
        return True

    def _take_turn(self, at: float, next_at: float) -> bool:
        """Take the round that starts now if jobs only take turns in it; return whether they do."""
        until = None if self._turns is None else self._turns.take(at, next_at)
        if until is None:
            return False
        self._timers["PlanDue"] = self._timers["RoundEnd"] = until
        self._kept_by_plan = None
        return True

    def _report(self, measured: JobsMeasured) -> None:
        """Send the measurements of running jobs, and the speeds learned from them."""
        if self._reads_measured and len(measured.lease):
            self._send(self._learning.reported(measured) if self._learning else measured)
        for change in self._learning.events(measured) if self._learning else ():
            self._send(change)

    def _protect_starts(self, at: float) -> None:
        if not self._scenario.protect_starts:
            return
        starting = self._virtual.starting_leases(at, self._queries.plan_applied_at(at))
        if set(starting.tolist()) != self._queries.pinned_leases():
            self._send(LeasesPinned(at, starting))

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
        if self._reads_restarts:
            for restart in self._virtual.restarts.events(event.at):
                self._send(restart)

    def _renew(self, command: Renew, event: Event) -> None:
        del event
        self._virtual.renew(command)

    def _preempt(self, command: Preempt, event: Event) -> None:
        outcome: LoggedOutcome = "lost" if type(event) in _NODE_LOSS_EVENTS else "left"
        if outcome == "lost" or self._virtual.frees_devices_at_once:
            self._send(self._virtual.end_leases(command.lease, event.at, outcome))
            return
        for when, leases in self._virtual.start_leaving(command.lease, event.at):
            heapq.heappush(self._departures, (when, int(leases[0]), leases))

    def _set_timer(self, command: SetTimer, event: Event) -> None:
        del event
        self._timers[command.event] = math.inf if command.at is None else command.at

    def _merge_copies(self, command: MergeCopies, event: Event) -> None:
        """Do nothing: merging takes no extra time; restarted copies pay the restore cost."""
        del command, event

    def _compute_plan(self, command: ComputePlan, event: Event) -> None:
        plan, memory = self._planner.plan(command.snapshot, command.memory)
        if self._scenario.parks:
            left = self._virtual.left_devices(plan.start.job)
            plan = exchange_devices(plan, self.scheduler.cluster, left)
        self._record.rounds += 1
        self._record.solves += plan.reallocated
        stays = not (len(plan.stop) or len(plan.start))
        self._kept_by_plan = command.snapshot if stays else None
        if self._turns is not None:
            self._turns.start_after(command.snapshot)
        ready = PlanReady(event.at + self._scenario.plan_s, command.version, plan, memory)
        if self._scenario.plan_s > 0.0:
            self._computed, self._timers["PlanReady"] = ready, ready.at
        else:
            self._plan_ready(ready)

    def _plan_ready(self, ready: PlanReady) -> None:
        self._send(ready)
        if self._scenario.plan_lead_s > 0.0 and self.scheduler.pending is ready.plan:
            self._virtual.prepare(ready.plan.start)


def _repeating(mechanism: Mechanism[Any]) -> RepeatsRounds | None:
    """Return the mechanism if it repeats rounds by itself."""
    if not isinstance(mechanism, RepeatsRounds) or not _is_own(mechanism, "repeated_rounds"):
        return None
    return mechanism


def _decides_turns(mechanism: Mechanism[Any]) -> bool:
    """Return whether the mechanism decides turns by itself."""
    return isinstance(mechanism, TakesTurns) and _is_own(mechanism, "turn_rounds")


def _is_own(mechanism: Mechanism[Any], name: str) -> bool:
    """Return whether the class that plans has this method: a subclass may plan otherwise."""
    decide = {"plan", "plan_warm", name}
    own = next(names for base in type(mechanism).__mro__ if (names := decide & vars(base).keys()))
    return name in own


def _may_have_deadlines(scenario: Scenario) -> bool:
    """Return whether a job has a deadline, or a reviewer might give it one."""
    return scenario.reviewer is not None or any(
        job.deadline_s is not None for job in scenario.jobs
    )
