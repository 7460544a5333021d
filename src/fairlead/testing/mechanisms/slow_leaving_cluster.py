"""A cluster on which jobs take their time to leave: longer than a round, in any order."""

import math
from itertools import combinations
from typing import Any

import numpy as np

from fairlead.core import Scheduler
from fairlead.model import events as ev
from fairlead.model.commands import Command, ComputePlan, Launch, Preempt, SetTimer
from fairlead.model.job import Job
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.testing.contract import require


class SlowLeavingCluster:
    """Carries out a scheduler's commands; who is told to leave does so when it is let go.

    It requires of every launch that nobody else holds the devices, except those with whom a plan
    has packed the job, and that the job's lease before it has ended.
    """

    def __init__(self, scheduler: Scheduler[Any], mechanism: Any, seed: int = 0) -> None:
        self._scheduler = scheduler
        self._mechanism = mechanism
        self._order = np.random.default_rng(seed)
        self._held: dict[int, tuple[int, int, frozenset[int]]] = {}
        """lease → job, copy, devices"""
        self._leaving: list[int] = []
        self._partners: set[frozenset[int]] = set()
        """jobs that some plan has put on the same devices"""
        self._timers: dict[str, float] = {}
        self.launches = 0

    @property
    def next_at(self) -> float:
        """When the scheduler wants to be woken next; infinite if it does not."""
        return min(self._timers.values(), default=math.inf)

    def submit(self, job: Job, at: float) -> None:
        """Hand in a job."""
        self._send(ev.JobSubmitted(at, job))

    def wake(self) -> None:
        """Let time pass until the scheduler's next timer: for a plan, or for the round's end."""
        name = min(self._timers, key=lambda timer: (self._timers[timer], timer))
        at = self._timers.pop(name)
        self._send(ev.PlanDue(at) if name == "PlanDue" else ev.RoundEnd(at))

    def let_go(self, at: float, part: float) -> None:
        """Let about this part of those who were told to leave do so, in no certain order."""
        for lease in self._order.permutation(np.array(self._leaving, dtype=np.int64)).tolist():
            if self._order.random() < part:
                self._leaving.remove(lease)
                del self._held[lease]
                self._send(ev.LeasesEnded(at, np.array([lease]), np.ones(1), "left"))

    def go_by(self, mechanism: Any, at: float) -> None:
        """Let the scheduler go on under another mechanism, as after a new start of a server."""
        scheduler = self._scheduler
        scheduler.go_by(scheduler.beliefs, mechanism, scheduler.plan_lead_s)
        self._mechanism = mechanism
        leases = scheduler.leases
        self._leaving = leases.lease[leases.open[leases.leaving[leases.open]]].tolist()
        self._timers = {"PlanDue": at}

    def _send(self, event: ev.Event) -> None:
        self._perform(self._scheduler.handle(event), event.at)

    def _perform(self, commands: list[Command], at: float) -> None:
        for command in commands:
            if isinstance(command, Launch):
                self._launch(command)
            elif isinstance(command, Preempt):
                self._leaving += command.lease.tolist()
            elif isinstance(command, ComputePlan):
                plan, memory = self._mechanism.plan(command.snapshot, command.memory)
                self._note_partners(command.snapshot, plan)
                self._send(ev.PlanReady(at, command.version, plan, memory))
            elif isinstance(command, SetTimer):
                self._timers.pop(command.event, None)
                if command.at is not None:
                    self._timers[command.event] = command.at

    def _note_partners(self, snap: Snapshot, plan: Plan) -> None:
        stays = np.append(~np.isin(snap.lease, plan.stop) & (snap.lease >= 0), False)
        on = [set(snap.job[rows[stays[rows]]].tolist()) for rows in snap.holds.T]
        for unit in plan.start:
            for device in unit.devices:
                on[device].add(unit.job)
        for jobs in on:
            self._partners |= {frozenset(pair) for pair in combinations(jobs, 2)}

    def _launch(self, command: Launch) -> None:
        for lease, unit in zip(command.lease.tolist(), command.on, strict=True):
            devices = frozenset(unit.devices)
            for job, copy, held in self._held.values():
                require((job, copy) != (unit.job, unit.copy), f"job {job} runs under two leases")
                require(
                    not held & devices or frozenset((job, unit.job)) in self._partners,
                    f"job {unit.job} starts before job {job} has left its devices",
                )
            self._held[lease] = (unit.job, unit.copy, devices)
            self.launches += 1
