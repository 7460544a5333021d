"""Rounds in which jobs of one device take turns, simulated without events."""

from typing import Any

import numpy as np

from fairlead.core import Scheduler
from fairlead.core.handlers.leases import jobs_measured
from fairlead.core.handlers.turn_rounds import (
    apply_turn,
    devices_by_row,
    may_take_turns,
    received_by_row,
)
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

    def start_after(self, snap: Snapshot) -> None:
        """Take turns after the plan for this snapshot, if nothing changes."""
        self._snap, self._turns = snap, None

    def take(self, at: float) -> float | None:
        """Take the round that starts now and return its end; None if it has to be planned."""
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
