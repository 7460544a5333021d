"""What the core has said must be what its tables hold, what members are told, and what rings."""

import math
from dataclasses import dataclass, replace
from typing import Any

from tests.faults.record import Record

from fairlead.model import commands as cmd
from fairlead.model import events as ev


@dataclass(slots=True)
class Held:
    """A lease as commands alone describe it."""

    job: int
    devices: frozenset[int]
    until: float
    leaving: bool = False


class CommandChecks:
    """Keeps books of leases and rounds, from commands and ends of leases alone, and compares."""

    def __init__(self, record: Record) -> None:
        self._require, self._now = record.require, record.now
        self._leases: dict[int, Held] = {}
        self._written: dict[int, Held] = {}
        """as far as the store has it"""
        self._timers: dict[str, float | None] = {}
        self._computes = False
        """a plan is being computed"""

    def handled(self, live: Any, event: ev.Event, commands: list[cmd.Command]) -> None:
        """Keep the books and compare them with the core's tables."""
        scheduler = live.scheduler
        if isinstance(event, ev.LeasesEnded):
            for lease in event.lease.tolist():
                self._require(lease in self._leases, f"lease {lease} ends, and was not open")
                self._leases.pop(lease, None)
        if isinstance(event, ev.PlanReady) and event.version == scheduler.version:
            self._computes = False
        if isinstance(event, ev.RoundEnd | ev.PlanDue):
            self._timers.pop(type(event).__name__, None)
        for command in commands:
            self._said(event, command)
            if isinstance(command, cmd.Renew) and isinstance(event, ev.PlanReady):
                ends = set(event.plan.stop.tolist()) & set(command.lease.tolist())
                waits = scheduler.pending is event.plan
                self._require(not (ends and waits), f"{ends} are renewed, which are to stop")
        found = _found(scheduler)
        books = {number: (one.job, one.devices, one.leaving) for number, one in self._books()}
        self._require(found == books, f"the core has leases {found} and has said {books}")
        leaving = sum(one.leaving for one in self._leases.values())
        self._require(leaving == scheduler.leases.leaving_count, f"{leaving} leases leave")
        holds = {one.job: number for number, one in self._books()}
        for job, lease in enumerate(scheduler.jobs.lease[: len(scheduler.jobs)].tolist()):
            self._require(lease == holds.get(job, -1), f"job {job} has lease {lease} of {holds}")

    def _books(self) -> list[tuple[int, Held]]:
        return list(self._leases.items())

    def _rings(self) -> list[float | None]:
        return list(self._timers.values())

    def _said(self, event: ev.Event, command: cmd.Command) -> None:
        match command:
            case cmd.Launch():
                # When a round has lasted too long, all that starts is renewed by the next plan.
                late = isinstance(event, ev.PlanReady) or self._computes
                late = late or any(at is not None and at <= event.at for at in self._rings())
                ahead = command.until > event.at or late
                self._require(ahead, f"a lease is launched at {event.at} until {command.until}")
                for lease, one in zip(command.lease.tolist(), command.on, strict=True):
                    self._require(lease not in self._leases, f"lease {lease} is launched twice")
                    self._leases[lease] = Held(one.job, frozenset(one.devices), command.until)
            case cmd.Renew():
                endless = isinstance(event, ev.RoundEnd) and command.until == math.inf
                self._require(
                    self._computes or not endless, "leases are endless, and no plan is to come"
                )
                for lease in command.lease.tolist():
                    good = lease in self._leases and not self._leases[lease].leaving
                    self._require(good, f"lease {lease} is renewed, which is over or leaves")
                    if good:
                        self._leases[lease].until = command.until
            case cmd.Preempt():
                for lease in command.lease.tolist():
                    good = lease in self._leases and not self._leases[lease].leaving
                    self._require(good, f"lease {lease} is told to leave, which is over or does")
                    if good:
                        self._leases[lease].leaving = True
            case cmd.ComputePlan():
                self._computes = True
            case cmd.SetTimer():
                self._timers[command.event] = command.at
            case cmd.MergeCopies():
                self._require(False, "a job is merged that was never forked")

    def settled(self, live: Any) -> None:
        """Compare what members are told, and what will ring, with what the core has said."""
        self._written = {number: replace(one) for number, one in self._books()}
        told = {number: (one.until, one.leaving) for number, one in live.leases.items()}
        # A lease that is to leave is not renewed: until when it was good matters no more.
        for number, one in self._books():
            found = told.pop(number, None)
            good = found is not None and found[1] == one.leaving
            good = good and (one.leaving or found is None or found[0] == one.until)
            self._require(good, f"members of lease {number} are told {found}, not {one}")
        self._require(not told, f"members of leases that are over are told {told}")
        if live.started and live._inbox.empty():
            self._check_rings(live)

    def _check_rings(self, live: Any) -> None:
        scheduler, now = live.scheduler, self._now()
        rings: dict[str, list[float]] = {"PlanDue": [], "RoundEnd": []}
        names = {"_plan_due": "PlanDue", "_round_end": "RoundEnd"}
        for handle in (*live.loop._scheduled, *live.loop._ready):
            owner = getattr(handle._callback, "__self__", None)
            if owner is live.rounds and not handle.cancelled():
                rings[names[handle._callback.__name__]].append(handle.when())
        for event, at in rings.items():
            self._require(len(at) <= 1, f"{event} rings at {at}")
            wanted = self._timers.get(event)
            if at and wanted is not None:
                due = now + max(wanted - live.clock.now(), 0.0)
                rings_at = max(at[0], now)  # one that is overdue, as time stalled, rings now
                self._require(abs(rings_at - due) < 1e-3, f"{event} rings at {at}, not at {due}")
        endless = {one.job for _, one in self._books() if one.until == math.inf}
        if set(scheduler.jobs.active.tolist()) - endless:
            # Somebody waits for what comes next, so something must.
            comes = rings["PlanDue"] or (scheduler.pending is not None and rings["RoundEnd"])
            self._require(comes or self._computes, f"no plan is to come: {rings}")

    def rebuilt(self, live: Any) -> None:
        """Require that a server knows after a restart what was written, or all that was said."""
        found = _found(live.scheduler)
        known = [
            {number: (one.job, one.devices, one.leaving) for number, one in had.items()}
            for had in (self._written, self._leases)
        ]
        self._require(found in known, f"after a restart there are leases {found}, not {known}")

    def begin(self, live: Any) -> None:
        """Begin anew with a server that has read all and goes by its own rules."""
        scheduler = live.scheduler
        end = scheduler.round_end_at
        until = math.inf if end is None else end
        self._leases = {
            number: Held(job, devices, until, leaving)
            for number, (job, devices, leaving) in _found(scheduler).items()
        }
        due = 0.0 if end is None else end - scheduler.plan_lead_s
        wants = end is None or scheduler.pending is None
        self._timers = {"RoundEnd": end, "PlanDue": due if wants else None}
        self._computes = scheduler.planning


def _found(scheduler: Any) -> dict[int, tuple[int, frozenset[int], bool]]:
    """Return the core's open leases: job, devices, whether it was told to leave."""
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
