"""Checks that tables, renewals and timers agree with the core's commands."""

import math
from dataclasses import dataclass, replace
from typing import Any

from tests.faults.record import RunRecord

from fairlead.model import commands as cmd
from fairlead.model import events as ev
from fairlead.model.lease import SLOT_LIMIT


@dataclass(slots=True)
class BookedLease:
    """A lease as described by commands alone."""

    job: int
    devices: frozenset[int]
    until: float
    leaving: bool = False
    copy: int = 0


class CommandChecks:
    """Derives leases and timers from commands and lease ends alone, and compares them."""

    def __init__(self, record: RunRecord) -> None:
        self._require, self._now = record.require, record.now
        self._leases: dict[int, BookedLease] = {}
        self._persisted: dict[int, BookedLease] = {}
        """the same, as persisted in the store"""
        self._timers: dict[str, float | None] = {}
        self._planning = False
        """whether a plan is being computed"""

    def handled(self, live: Any, event: ev.Event, commands: list[cmd.Command]) -> None:
        """Update the derived leases and compare them with the core's tables."""
        scheduler = live.scheduler
        if isinstance(event, ev.LeasesEnded):
            for lease in event.lease.tolist():
                self._require(lease in self._leases, f"lease {lease} ends but was not open")
                self._leases.pop(lease, None)
        if isinstance(event, ev.PlanReady) and event.version == scheduler.version:
            self._planning = False
        if isinstance(event, ev.RoundEnd | ev.PlanDue):
            self._timers.pop(type(event).__name__, None)
        for command in commands:
            self._apply(event, command)
            if isinstance(command, cmd.Renew) and isinstance(event, ev.PlanReady):
                ends = set(event.plan.stop.tolist()) & set(command.lease.tolist())
                waits = scheduler.pending is event.plan
                self._require(
                    not (ends and waits), f"{ends} are renewed although the plan stops them"
                )
        actual = _open_leases(scheduler)
        booked = {
            number: (lease.job, lease.devices, lease.leaving) for number, lease in self._booked()
        }
        self._require(actual == booked, f"the core has leases {actual}, its commands {booked}")
        leaving = sum(lease.leaving for lease in self._leases.values())
        self._require(
            leaving == scheduler.leases.leaving_count,
            f"{leaving} leases are leaving, the core counts {scheduler.leases.leaving_count}",
        )
        lease_of = {lease.job: number for number, lease in self._booked() if not lease.copy}
        for job, lease in enumerate(scheduler.jobs.lease[: len(scheduler.jobs)].tolist()):
            self._require(
                lease == lease_of.get(job, -1), f"job {job} has lease {lease}: {lease_of}"
            )

    def _booked(self) -> list[tuple[int, BookedLease]]:
        return list(self._leases.items())

    def _due_times(self) -> list[float | None]:
        return list(self._timers.values())

    def _apply(self, event: ev.Event, command: cmd.Command) -> None:
        match command:
            case cmd.Launch():
                # After an overlong round the next plan renews all new leases.
                late = isinstance(event, ev.PlanReady) or self._planning
                late = late or any(at is not None and at <= event.at for at in self._due_times())
                ahead = command.until > event.at or late
                self._require(ahead, f"lease launched at {event.at} until {command.until}")
                for lease, placement in zip(command.lease.tolist(), command.on, strict=True):
                    self._require(lease not in self._leases, f"lease {lease} launched twice")
                    held = frozenset(placement.devices)
                    self._leases[lease] = BookedLease(
                        placement.job, held, command.until, copy=placement.copy
                    )
            case cmd.Renew():
                endless = isinstance(event, ev.RoundEnd) and command.until == math.inf
                self._require(
                    self._planning or not endless, "leases have no end although no plan is pending"
                )
                for lease in command.lease.tolist():
                    good = lease in self._leases and not self._leases[lease].leaving
                    self._require(good, f"lease {lease} renewed although ended or leaving")
                    if good:
                        self._leases[lease].until = command.until
            case cmd.Preempt():
                for lease in command.lease.tolist():
                    good = lease in self._leases and not self._leases[lease].leaving
                    self._require(good, f"lease {lease} preempted although ended or leaving")
                    if good:
                        self._leases[lease].leaving = True
            case cmd.ComputePlan():
                self._planning = True
            case cmd.SetTimer():
                self._timers[command.event] = command.at
            case cmd.MergeCopies():
                still = [n for n, lease in self._booked() if lease.job == command.job]
                self._require(not still, f"copies merged while {still} are open")

    def settled(self, live: Any) -> None:
        """Compare renewals and timers with the core's commands."""
        self._persisted = {number: replace(lease) for number, lease in self._booked()}
        renewals = {number: (lease.until, lease.leaving) for number, lease in live.leases.items()}
        # A leaving lease is not renewed, so its end no longer matters.
        for number, booked in self._booked():
            renewal = renewals.pop(number, None)
            good = renewal is not None and renewal[1] == booked.leaving
            good = good and (booked.leaving or renewal is None or renewal[0] == booked.until)
            self._require(good, f"lease {number} is renewed with {renewal}, not {booked}")
        self._require(not renewals, f"ended leases are renewed: {renewals}")
        if live.started and live.inbox.empty():
            self._check_timers(live)

    def _check_timers(self, live: Any) -> None:
        scheduler, now = live.scheduler, self._now()
        timers: dict[str, list[float]] = {"PlanDue": [], "RoundEnd": []}
        names = {"_plan_due": "PlanDue", "_round_end": "RoundEnd"}
        for handle in (*live.loop._scheduled, *live.loop._ready):
            owner = getattr(handle._callback, "__self__", None)
            if owner is live.rounds and not handle.cancelled():
                timers[names[handle._callback.__name__]].append(handle.when())
        for event, at in timers.items():
            self._require(len(at) <= 1, f"{event} is scheduled at {at}")
            wanted = self._timers.get(event)
            if at and wanted is not None:
                due = now + max(wanted - live.clock.now(), 0.0)
                fires_at = max(at[0], now)  # a timer overdue after a stall fires now
                self._require(abs(fires_at - due) < 1e-3, f"{event} fires at {at}, not at {due}")
        endless = {lease.job for _, lease in self._booked() if lease.until == math.inf}
        if set(scheduler.jobs.active.tolist()) - endless:
            # Active jobs wait, so a plan must be pending.
            pending = timers["PlanDue"] or (scheduler.pending is not None and timers["RoundEnd"])
            self._require(pending or self._planning, f"no plan is pending: {timers}")

    def rebuilt(self, live: Any) -> None:
        """Require that a restarted server has the persisted leases, or those of all commands."""
        actual = _open_leases(live.scheduler)
        known = [
            {number: (lease.job, lease.devices, lease.leaving) for number, lease in had.items()}
            for had in (self._persisted, self._leases)
        ]
        self._require(actual in known, f"leases after a restart: {actual}, expected {known}")

    def begin(self, live: Any) -> None:
        """Start over with a server that has recovered its state and applied its config."""
        scheduler = live.scheduler
        end = scheduler.round_end_at
        until = math.inf if end is None else end
        self._leases = {
            number: BookedLease(job, devices, until, leaving, _copy(scheduler, number))
            for number, (job, devices, leaving) in _open_leases(scheduler).items()
        }
        due = 0.0 if end is None else end - scheduler.plan_lead_s
        wants = end is None or scheduler.pending is None
        self._timers = {"RoundEnd": end, "PlanDue": due if wants else None}
        self._planning = scheduler.planning


def _copy(scheduler: Any, lease: int) -> int:
    return int(scheduler.leases.copy[lease & (SLOT_LIMIT - 1)])


def _open_leases(scheduler: Any) -> dict[int, tuple[int, frozenset[int], bool]]:
    """Return the core's open leases: job, devices, whether leaving."""
    leases = scheduler.leases
    devices: dict[int, list[int]] = {}
    for lane in leases.holder.tolist():
        for device, slot in enumerate(lane):
            devices.setdefault(slot, []).append(device)
    numbers, jobs = leases.lease.tolist(), leases.job.tolist()
    return {
        number: (jobs[slot], frozenset(devices.get(slot, ())), bool(leases.leaving[slot]))
        for slot, number in enumerate(numbers)
        if number >= 0
    }
