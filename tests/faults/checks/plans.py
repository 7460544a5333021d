"""Checks that plans are followed: leases to stop are preempted, jobs to start do or wait."""

from typing import Any

import numpy as np
from tests.faults.record import RunRecord

from fairlead.core.jobs import JobState
from fairlead.model import commands as cmd
from fairlead.model import events as ev
from fairlead.model.lease import SLOT_LIMIT
from fairlead.model.plan import Plan


class PlanChecks:
    """Follows every plan until all of its launches have been made."""

    def __init__(self, record: RunRecord) -> None:
        self._require = record.require
        self._pending: Plan | None = None
        self._waits: dict[int, tuple[int, ...]] = {}
        """job → devices that it waits for"""

    def begin(self, live: Any) -> None:
        """Start over with a server that has recovered its state and applied its config."""
        self._pending, self._waits = live.scheduler.pending, _waits(live.scheduler)

    def handled(self, live: Any, event: ev.Event, commands: list[cmd.Command]) -> None:
        """Check the current plan and one that this event applies."""
        scheduler = live.scheduler
        if isinstance(event, ev.PlanReady | ev.RoundEnd):
            self._check_pinned(scheduler, commands)
        if isinstance(event, ev.PlanDue):
            self._check_progress(live)
        plan = self._applied(event, commands)
        before, self._waits = self._waits, _waits(scheduler)
        self._pending = scheduler.pending
        # Limits, closed nodes and pinned leases may prevent a plan from being followed.
        bound = scheduler.nodes.keeps_jobs(scheduler.leases) or any(
            tenant.limit for tenant in scheduler.jobs.tenants
        )
        if plan is not None:
            before = {placement.job: placement.devices for placement in plan.start}
            for lease in [] if bound else plan.stop.tolist():
                slots = scheduler.leases.lease == lease
                stays = (slots & ~scheduler.leases.leaving).any()
                self._require(not stays, f"lease {lease} continues although the plan stops it")
        launched = {
            int(job)
            for command in commands
            if isinstance(command, cmd.Launch)
            for job in command.on.job
        }
        for job, devices in before.items():
            active = scheduler.jobs.state[job] == JobState.ACTIVE
            usable = scheduler.nodes.is_open[list(devices)].all()
            if active and usable and not bound:
                good = job in launched or job in self._waits
                # No steps may be left for another copy beside the running ones.
                forks = scheduler.jobs.jobs[job].max_copies is not None
                good = good or (forks and len(scheduler.leases.of_job(job)) > 0)
                self._require(good, f"job {job} neither starts nor waits for {devices}")

    def _check_progress(self, live: Any) -> None:
        """Require that a plan uses the latest steps that members reported."""
        jobs = live.scheduler.jobs
        for number, lease in live.leases.items():
            known = float(jobs.steps[jobs.number[lease.job]])
            self._require(
                known >= lease.steps,
                f"lease {number} reported {lease.steps} steps, the plan uses {known}",
            )

    def _check_pinned(self, scheduler: Any, commands: list[cmd.Command]) -> None:
        """Require that no plan preempts leases on cordoned nodes or taken devices.

        Leases beyond a tenant's limit are exempt.
        """
        leases, nodes, jobs = scheduler.leases, scheduler.nodes, scheduler.jobs
        limited = {tenant.id for tenant in jobs.tenants if tenant.limit}
        closed = nodes.taken | np.isin(nodes.cluster.node_of, list(nodes.cordoned))
        for command in commands:
            for lease in command.lease.tolist() if isinstance(command, cmd.Preempt) else ():
                devices = (leases.lease[leases.holder] == lease) & (leases.holder >= 0)
                pinned = bool((devices.any(axis=0) & closed).any())
                tenant = jobs.jobs[int(leases.job[lease & (SLOT_LIMIT - 1)])].tenant
                pinned = pinned and tenant not in limited
                self._require(not pinned, f"lease {lease} preempted on a closed node")

    def _applied(self, event: ev.Event, commands: list[cmd.Command]) -> Plan | None:
        """Return the plan that an event applies."""
        until = [
            command.at
            for command in commands
            if isinstance(command, cmd.SetTimer) and command.event == "RoundEnd"
        ]
        plan = event.plan if isinstance(event, ev.PlanReady) else self._pending
        applied = isinstance(event, ev.PlanReady | ev.RoundEnd) and plan is not None
        return plan if applied and plan is not None and plan.until in until else None


def _waits(scheduler: Any) -> dict[int, tuple[int, ...]]:
    return {placement.job: placement.devices for placement in scheduler.waiting}
