"""Rounds in which jobs of one device take turns, simulated without events."""

from typing import Any

import numpy as np

from fairlead.compiled import compiled
from fairlead.core import Scheduler
from fairlead.core.handlers.leases import jobs_measured
from fairlead.core.handlers.turn_rounds import (
    apply_rounds,
    apply_turn,
    devices_by_row,
    may_run_rounds,
    may_take_turns,
    received_by_row,
    turn_run,
)
from fairlead.mechanisms._tickets import turn_run as t
from fairlead.mechanisms._tickets.turn_run import TakesRounds
from fairlead.mechanisms.base import Measured, TakesTurns, Turn, Turns
from fairlead.mechanisms.planner import Planner
from fairlead.model.events import JobsMeasured
from fairlead.model.lease import NO_PLACEMENTS, Placements
from fairlead.model.snapshot import Snapshot
from fairlead.sim.cluster.virtual_cluster import VirtualCluster
from fairlead.sim.record import Record


class TurnRounds:
    """Takes the rounds that follow a plan while nothing changes but the time that jobs receive.

    The tables of the scheduler and of the virtual cluster are the same afterwards as if every
    round had been planned.
    """

    def __init__(
        self,
        mechanism: TakesTurns,
        planner: Planner,
        scheduler: Scheduler[Any],
        virtual: VirtualCluster,
        record: Record,
    ) -> None:
        self._mechanism = mechanism
        self._planner = planner
        self._scheduler = scheduler
        self._virtual = virtual
        self._record = record
        self._snap: Snapshot | None = None
        """snapshot of the last plan, until its turns were asked for"""
        self._turns: Turns | None = None
        # A list of all leases has those between two events, too.
        self._columns = None if record.intervals is not None else virtual.turn_columns()

    def start_after(self, snap: Snapshot) -> None:
        """Take turns after the plan for this snapshot, if nothing changes."""
        self._snap, self._turns = snap, None

    def take(self, at: float, next_event_at: float) -> float | None:
        """Take the round that starts now and return its end; None if it has to be planned.

        Where the loop over rounds was compiled, take all rounds until a job finishes or another
        event comes.
        """
        state = self._scheduler
        snap, self._snap = self._snap, None
        if snap is None and self._turns is None:
            return None
        if not may_take_turns(state):
            self._turns = None
            return None
        if snap is not None:
            device = devices_by_row(state)
            self._turns = self._planner.turn_rounds(self._mechanism, snap, state.memory, device)
        if self._turns is None:
            return None
        until = self._take_rounds(self._turns, at, next_event_at)
        if until is not None:
            return until
        event, measured = None, None
        if state.capabilities.reads_measured:
            event = self._virtual.measured(at)
            measured = self._measured(event)
        turn = self._turns.next_turn(at, received_by_row(state, at), measured)
        if turn is None:
            self._turns = None
            return None
        if event is not None and len(event.lease):
            jobs_measured(state, event)
            self._record.ended_at = at
        until = at + self._mechanism.round_s
        self._apply(at, until, turn)
        self._record.rounds += 1
        return until

    def _take_rounds(self, turns: Turns, at: float, next_event_at: float) -> float | None:
        """Take several rounds at once; None if they have to be taken one by one."""
        state, columns = self._scheduler, self._columns
        if (
            compiled is None
            or columns is None
            or not isinstance(turns, TakesRounds)
            or not may_run_rounds(state)
            or not columns.have_whole_devices()
            or state.cluster.accelerators != self._virtual.accelerators
        ):
            return None
        job = state.jobs.active
        run = turn_run(state)
        columns.read(run, job)
        run.clock[[t.AT, t.ROUND_S]] = at, self._mechanism.round_s
        run.clock[[t.NEXT_EVENT_AT, t.RESTORE_COST_S]] = (
            next_event_at,
            self._virtual.restore_cost_s,
        )
        if not turns.take_rounds(run):
            return None
        until = float(run.clock[t.AT])
        state.memory = turns.memory
        apply_rounds(state, run)
        columns.write(run, job, until)
        return until

    def _measured(self, event: JobsMeasured) -> Measured:
        leases = self._scheduler.leases
        row = self._scheduler.jobs.active.searchsorted(leases.job[leases.slots(event.lease)])
        return Measured(row, event.steps_per_s, event.utilization, event.memory_gib)

    def _apply(self, at: float, until: float, turn: Turn) -> None:
        state, virtual = self._scheduler, self._virtual
        active = state.jobs.active
        ending, job = active[turn.stop], active[turn.start]
        steps = np.zeros(0)
        if len(ending):
            steps = virtual.end_leases(state.jobs.lease[ending], at, "left").steps
        units = NO_PLACEMENTS
        if len(job):
            units = Placements(job, np.zeros_like(job), np.arange(len(job) + 1), turn.device)
        state.memory = turn.memory
        applied = apply_turn(state, at, until, ending, steps, units)
        if len(ending) or len(job):
            self._record.ended_at = at
        if applied.after_release is not None:
            virtual.launch(applied.after_release, at)
        if applied.renewed is not None:
            virtual.renew(applied.renewed)
        if applied.at_once is not None:
            virtual.launch(applied.at_once, at)
