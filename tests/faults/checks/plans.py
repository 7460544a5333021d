"""What a plan says must be done: who is to stop is told, who is to start does or waits for it."""

from typing import Any

import numpy as np
from tests.faults.record import Record

from fairlead.core.jobs import JobState
from fairlead.model import commands as cmd
from fairlead.model import events as ev
from fairlead.model.lease import SLOTS
from fairlead.model.plan import Plan


class PlanChecks:
    """Follows every plan from its being ready until all that it starts has started."""

    def __init__(self, record: Record) -> None:
        self._require = record.require
        self._pending: Plan | None = None
        self._waits: dict[int, tuple[int, ...]] = {}
        """job → devices for which it waits"""

    def begin(self, live: Any) -> None:
        """Begin anew with a server that has read all and goes by its own rules."""
        self._pending, self._waits = live.scheduler.pending, _waits(live.scheduler)

    def handled(self, live: Any, event: ev.Event, commands: list[cmd.Command]) -> None:
        """Look at what became of the plan in force, and of one that comes into force now."""
        scheduler = live.scheduler
        if isinstance(event, ev.PlanReady | ev.RoundEnd):
            self._check_pinned(scheduler, commands)
        if isinstance(event, ev.PlanDue):
            self._check_heard(live)
        plan = self._applied(event, commands)
        before, self._waits = self._waits, _waits(scheduler)
        self._pending = scheduler.pending
        # Limits and nodes that are closed to others may keep a plan from being followed.
        bound = scheduler.nodes.any_closed or any(one.limit for one in scheduler.jobs.tenants)
        if plan is not None:
            before = {one.job: one.devices for one in plan.start}
            for lease in [] if bound else plan.stop.tolist():
                slots = scheduler.leases.lease == lease
                stays = (slots & ~scheduler.leases.leaving).any()
                self._require(not stays, f"lease {lease} goes on, which the plan stops")
        launched = {
            int(job) for one in commands if isinstance(one, cmd.Launch) for job in one.on.job
        }
        for job, devices in before.items():
            active = scheduler.jobs.state[job] == JobState.ACTIVE
            there = scheduler.nodes.is_open[list(devices)].all()
            if active and there and not bound:
                good = job in launched or job in self._waits
                self._require(good, f"job {job} is to start on {devices} and is forgotten")

    def _check_heard(self, live: Any) -> None:
        """Require that a plan is made from all that members have told of their steps."""
        jobs = live.scheduler.jobs
        for number, one in live.leases.items():
            known = float(jobs.steps[jobs.number[one.job]])
            self._require(
                known >= one.steps, f"lease {number} told of {one.steps} steps, a plan of {known}"
            )

    def _check_pinned(self, scheduler: Any, commands: list[cmd.Command]) -> None:
        """Require that no plan stops what runs on cordoned nodes, or on devices of others.

        What a tenant holds beyond its limit leaves in any case.
        """
        leases, nodes, jobs = scheduler.leases, scheduler.nodes, scheduler.jobs
        limited = {tenant.id for tenant in jobs.tenants if tenant.limit}
        closed = nodes.taken | np.isin(nodes.cluster.node_of, list(nodes.cordoned))
        for one in commands:
            for lease in one.lease.tolist() if isinstance(one, cmd.Preempt) else ():
                mine = (leases.lease[leases.holder] == lease) & (leases.holder >= 0)
                pinned = bool((mine.any(axis=0) & closed).any())
                tenant = jobs.jobs[int(leases.job[lease & (SLOTS - 1)])].tenant
                pinned = pinned and tenant not in limited
                self._require(not pinned, f"lease {lease} is told to leave a node that is closed")

    def _applied(self, event: ev.Event, commands: list[cmd.Command]) -> Plan | None:
        """Return the plan that comes into force with an event."""
        until = [
            one.at for one in commands if isinstance(one, cmd.SetTimer) and one.event == "RoundEnd"
        ]
        plan = event.plan if isinstance(event, ev.PlanReady) else self._pending
        comes = isinstance(event, ev.PlanReady | ev.RoundEnd) and plan is not None
        return plan if comes and plan is not None and plan.until in until else None


def _waits(scheduler: Any) -> dict[int, tuple[int, ...]]:
    return {one.job: one.devices for one in scheduler.waiting}
