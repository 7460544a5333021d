"""Simulated cluster whose preempted jobs leave after more than a round, in random order."""

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
    """Executes a scheduler's commands; preempted jobs leave only in ``finish_leaving``.

    Every launch requires that no other job holds the devices, except jobs that a plan has packed
    with the launched one, and that the job's previous lease has ended.
    """

    def __init__(self, scheduler: Scheduler[Any], mechanism: Any, seed: int = 0) -> None:
        self._scheduler = scheduler
        self._mechanism = mechanism
        self._order = np.random.default_rng(seed)
        self._held: dict[int, tuple[int, int, frozenset[int]]] = {}
        """lease → job, copy, devices"""
        self._leaving: list[int] = []
        self._partners: set[frozenset[int]] = set()
        """pairs of jobs that a plan has packed on the same devices"""
        self._timers: dict[str, float] = {}
        self.launches = 0

    @property
    def next_at(self) -> float:
        """Time of the scheduler's next timer; infinite without one."""
        return min(self._timers.values(), default=math.inf)

    def submit(self, job: Job, at: float) -> None:
        """Submit a job."""
        self._send(ev.JobSubmitted(at, job))

    def wake(self) -> None:
        """Fire the scheduler's next timer: plan due, or end of the round."""
        name = min(self._timers, key=lambda timer: (self._timers[timer], timer))
        at = self._timers.pop(name)
        self._send(ev.PlanDue(at) if name == "PlanDue" else ev.RoundEnd(at))

    def finish_leaving(self, at: float, fraction: float) -> None:
        """Let about this fraction of the preempted jobs leave, in random order."""
        for lease in self._order.permutation(np.array(self._leaving, dtype=np.int64)).tolist():
            if self._order.random() < fraction:
                self._leaving.remove(lease)
                del self._held[lease]
                self._send(ev.LeasesEnded(at, np.array([lease]), np.ones(1), "left"))

    def switch_mechanism(self, mechanism: Any, at: float) -> None:
        """Continue with another mechanism, as after a restart of the server."""
        scheduler = self._scheduler
        scheduler.reconfigure(scheduler.beliefs, mechanism, scheduler.plan_lead_s)
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
                self._record_partners(command.snapshot, plan)
                self._send(ev.PlanReady(at, command.version, plan, memory))
            elif isinstance(command, SetTimer):
                self._timers.pop(command.event, None)
                if command.at is not None:
                    self._timers[command.event] = command.at

    def _record_partners(self, snap: Snapshot, plan: Plan) -> None:
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
