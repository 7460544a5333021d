"""The live driver: one event at a time into the store, the core, and out to the engine."""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from fairlead import crash
from fairlead.core import Scheduler, decode_event, encode_event, load_state, save_state
from fairlead.core.jobs import JobState
from fairlead.engines.base import (
    DevicesTaken,
    Ended,
    Engine,
    NodeDown,
    NodeFound,
    NodeUp,
    Progressed,
    Report,
    Tidies,
)
from fairlead.live.clock import Clock
from fairlead.live.inputs import Changes, Input, Make
from fairlead.live.inventory import Inventory, require_some_known
from fairlead.live.leases import Costs, Load, OpenLease
from fairlead.live.ledger import Ledger
from fairlead.live.measured import emulated_speed, measured
from fairlead.live.nodes import LiveNodes
from fairlead.live.orders import Environment, Orders
from fairlead.live.spec import JobSpec, read_spec
from fairlead.live.workers import Threads, Workers
from fairlead.mechanisms.base import Mechanism
from fairlead.model import commands as cmd
from fairlead.model import events as ev
from fairlead.model.arrays import NO_INTS
from fairlead.model.cluster import Cluster
from fairlead.model.errors import FairleadError
from fairlead.model.job import Tenant
from fairlead.model.lease import NOTHING, Placement
from fairlead.model.plan import Plan
from fairlead.model.speeds import SpeedTable
from fairlead.store import Audit, Change, Put, Remove, Store

log = structlog.get_logger("fairlead.live")

_MOST_AT_ONCE = 500
_LONGEST_S = 0.02
"""spent on inputs at a time, before they are written down and reads get their turn"""
_ACTS_AT_ONCE = 8
"""starts and stops between which reads get their turn"""
_EVENTS_PER_STATE, _BYTES_PER_STATE = 5000, 4 << 20
"""after which the state is saved: what a restart has to go through takes well under a second"""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 300.0
_START_AGAIN_S = 5.0
"""after a lease could not be started, for want of room on the disk or the like"""
_OUTCOME: dict[str, ev.Outcome] = {
    "finished": "finished",
    "left": "left",
    "failed": "failed",
    "lost": "lost",
    "refused": "lost",
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a live scheduler is made of."""

    cluster: Cluster
    beliefs: SpeedTable
    mechanism: Mechanism[Any]
    data: Path
    plan_lead_s: float
    environment: Environment
    emulated: SpeedTable | None = None
    """the speeds of accelerators that are emulated"""


@dataclass
class Live:
    """Owns the core; everything that happens goes through its one queue."""

    store: Store
    engine: Engine
    setting: Setting
    token: int
    clock: Clock = field(default_factory=Clock)
    workers: Workers = field(default_factory=Threads)

    def __post_init__(self) -> None:
        setting = self.setting
        inventory = Inventory(self.store, setting.cluster)
        self.scheduler: Scheduler[Any] = Scheduler(
            inventory.first,
            setting.beliefs,
            setting.mechanism,
            plan_lead_s=setting.plan_lead_s,
        )
        self.specs: dict[str, JobSpec] = {}
        self.messages: dict[str, str] = {}
        """job → what its last lease had to say"""
        self.ledger = Ledger()
        self.orders = Orders(setting.data, setting.environment)
        self.leases: dict[int, OpenLease] = {}
        self._load = Load()
        self.costs = Costs()
        self.decisions_s: list[float] = []
        """what recent plans took to compute"""
        self.rounds_s: list[float] = []
        """what recent rounds took from the time a plan was due until it was written down"""
        self._due_at: float | None = None
        self.listeners: set[asyncio.Queue[dict[str, object]]] = set()
        self.broken = asyncio.Event()
        """set when the driver cannot go on: the process must end and start again"""
        self._held_by_user: set[str] = set()
        self._seq = 0
        self._saved_seq = 0
        self._unsaved_bytes = 0
        """of events since the last saved state"""
        self._inbox: asyncio.Queue[Input] = asyncio.Queue()
        self.nodes = LiveNodes(self.scheduler, inventory, self.clock, self)
        self._outbox: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._perform: dict[type, Callable[[Any], None]] = {
            cmd.Launch: self._launch,
            cmd.Renew: self._renew,
            cmd.Suspend: self._suspend,
            cmd.SetTimer: self._set_timer,
            cmd.ComputePlan: self._compute_plan,
            cmd.Consolidate: lambda _: None,
        }

    # -- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Rebuild the state from the store, take over what runs, and begin."""
        crash.point("server.start.locked")
        self.clock.not_before(self._rebuild())
        crash.point("server.start.rebuilt")
        require_some_known(self.scheduler.cluster, self.setting.cluster)
        self.nodes.engine_has(self.setting.cluster.nodes)
        leases = self.scheduler.leases
        slots = leases.open
        numbers = leases.lease[slots].tolist()
        self._take_over(slots.tolist())
        self._spawn(self._listen())
        self._spawn(self._work_off())
        await self.engine.adopt(numbers)
        crash.point("server.start.adopted")
        for slot in slots[leases.leaving[slots]].tolist():
            await self.engine.stop(int(leases.lease[slot]))
        self._spawn(self._loop())
        self._resume_timers()

    async def stop(self) -> None:
        """Stop deciding; jobs go on under their leases."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for timer in self._timers.values():
            timer.cancel()
        self.workers.close()
        await self.engine.close()

    def _rebuild(self) -> float:
        """Load the last state and the events after it; return the last event's time."""
        for job_id, document in self.store.documents("job").items():
            self.specs[job_id] = read_spec(document)
        self._held_by_user.update(self.store.documents("hold"))
        self.nodes.drained.update(self.store.documents("drain"))
        last_at = 0.0
        state = self.store.load_state()
        if state is not None:
            self._seq, body = state
            saved = json.loads(body)
            load_state(self.scheduler, saved["core"])
            self.ledger.restore(saved["ledger"])
            last_at = saved["at"]
        self._saved_seq = self._seq
        memory_type = type(self.scheduler.memory)
        for record in self.store.load_events(self._seq):
            event = decode_event(record.body, memory_type)
            self._handle(event)
            self._seq, last_at = record.seq, event.at
            self._unsaved_bytes += len(record.body)
        self.nodes.rebuilt()
        return last_at

    def _take_over(self, slots: Sequence[int]) -> None:
        leases, until = self.scheduler.leases, self.scheduler.round_end_at
        for slot in slots:
            job = self.scheduler.jobs.ids[int(leases.job[slot])]
            number = int(leases.lease[slot])
            self._open(
                OpenLease(
                    number,
                    job,
                    int((leases.holder == slot).any(axis=0).sum()),  # an elastic gang may differ
                    math.inf if until is None else until,
                    bool(leases.leaving[slot]),
                )
            )

    def _resume_timers(self) -> None:
        scheduler = self.scheduler
        until = scheduler.round_end_at
        if until is not None:
            self._set_timer(cmd.SetTimer("RoundEnd", until))
        if scheduler.pending is None or until is None:
            lead = self.setting.plan_lead_s
            self._set_timer(cmd.SetTimer("PlanDue", 0.0 if until is None else until - lead))
        jobs = self.scheduler.jobs
        for number in (jobs.state[: len(jobs)] == JobState.HELD).nonzero()[0].tolist():
            if jobs.ids[number] not in self._held_by_user:  # it waits after a failure
                self._release_later(jobs.ids[number], 0.0)

    # -- what users ask for ---------------------------------------------------------------------

    async def submit(self, spec: JobSpec, who: str) -> JobSpec:
        """Take in a job; it is on disk when this returns."""
        named: list[JobSpec] = []

        def make(at: float) -> Sequence[ev.Event]:
            made = spec.named(spec.id or f"j{len(self.scheduler.jobs) + 1}")
            named.append(made)
            return [ev.JobSubmitted(at, made.job(at))]

        def changes() -> Sequence[Change]:
            made = named[0]
            self.specs[made.id] = made
            return [
                Put("job", made.id, made.document()),
                Audit(self.clock.now(), who, "submit", made.id),
            ]

        await self.do(make, changes)
        self._publish("job.submitted", job=named[0].id)
        return named[0]

    async def change(self, event: Callable[[float], ev.Event], audit: Audit) -> None:
        """Let one event happen, with its line in the audit trail."""
        await self.do(lambda at: [event(at)], [audit])
        if audit.subject in self.specs:
            self._publish("job.changed", job=audit.subject, action=audit.action)

    async def cancel(self, job_id: str, who: str) -> None:
        """End a job for good."""
        audit = Audit(self.clock.now(), who, "cancel", job_id)
        await self.change(lambda at: ev.JobCancelled(at, job_id), audit)

    async def hold(self, job_id: str, who: str) -> None:
        """Let a job wait until it is released."""
        audit = Audit(self.clock.now(), who, "suspend", job_id)

        def changes() -> Sequence[Change]:
            self._held_by_user.add(job_id)  # at once: a retry that is due must not release it
            return [audit, Put("hold", job_id, who)]

        await self.do(lambda at: [ev.JobHeld(at, job_id)], changes)
        self._publish("job.changed", job=job_id, action=audit.action)

    async def release(self, job_id: str, who: str) -> None:
        """Let a held job run again."""
        audit = Audit(self.clock.now(), who, "resume", job_id)

        def changes() -> Sequence[Change]:
            self._held_by_user.discard(job_id)
            return [audit, Remove("hold", job_id)]

        await self.do(lambda at: [ev.JobReleased(at, job_id)], changes)
        self._publish("job.changed", job=job_id, action=audit.action)

    async def set_tenant(self, tenant: Tenant, who: str) -> None:
        """Add a tenant or change one."""
        audit = Audit(self.clock.now(), who, "tenant", tenant.id)
        await self.change(lambda at: ev.TenantChanged(at, tenant), audit)

    async def write(self, changes: Sequence[Change]) -> None:
        """Write documents and audit lines that no event goes with."""
        await self.do(lambda _: [], changes)

    def end_streams(self) -> None:
        """Tell whoever follows events that no more will come."""
        self._publish("server.stopping")

    def renew(self, lease: int, told: dict[str, object]) -> dict[str, object] | None:
        """Answer a job's renewal; None when the lease is over."""
        found = self.leases.get(lease)
        if found is None:
            return None
        self._load.leaving = self.scheduler.leases.n_leaving
        answer = found.renew(self.clock.now(), told, self._load)
        if self.setting.emulated is not None and self.scheduler.leases.packed:
            answer["emulated_steps_per_s"] = emulated_speed(
                self.setting.emulated, self.scheduler, self.specs, lease
            )
        return answer

    # -- the loop -------------------------------------------------------------------------------

    async def do(self, make: Make, changes: Changes = ()) -> None:
        """Take in a happening; it is on disk when this returns."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._inbox.put_nowait(Input(make, changes, answer))
        await answer

    def put(self, make: Make, changes: Changes = ()) -> None:
        """Take in a happening that nobody waits for."""
        self._inbox.put_nowait(Input(make, changes))

    async def _loop(self) -> None:
        while True:
            await self._take_in(await self._inbox.get())

    def _next(self, first: Input) -> Iterator[Input]:
        """Yield what waits, as much as may be taken in at once."""
        yield first
        until = self.clock.now() + _LONGEST_S
        for _ in range(_MOST_AT_ONCE - 1):
            if self._inbox.empty() or self.clock.now() > until:
                return
            yield self._inbox.get_nowait()

    async def _take_in(self, first: Input) -> None:
        """Handle what waits, write it down, and only then act on it and answer.

        The core is ahead of the store for a moment. If the store fails the process must end: it
        starts again from what is written.
        """
        now = self.clock.now()
        batch: list[Input] = []
        bodies: list[str] = []
        changes: list[Change] = []
        commands: list[cmd.Command] = []
        ended: list[int] = []
        for one in self._next(first):
            batch.append(one)
            try:
                for event in one.make(now):
                    commands += self._handle(event)
                    bodies.append(encode_event(event))
                    if isinstance(event, ev.LeasesEnded):
                        ended += event.lease.tolist()
                changes += one.changes() if callable(one.changes) else one.changes
            except FairleadError as error:
                if one.answer is None:
                    log.warning("event.refused", error=str(error))
                elif not one.answer.cancelled():
                    one.answer.set_exception(error)
        if bodies or changes:
            crash.point("server.commit.before")
            written = self._seq + 1
            await self.workers.write(self.store.append, self.token, written, bodies, changes)
            self._seq += len(bodies)
            self._unsaved_bytes += sum(map(len, bodies))
            crash.point("server.commit.after")
        for command in commands:
            self._perform[type(command)](command)
        if ended and isinstance(self.engine, Tidies):
            self._spawn(self.engine.forget(ended))
        crash.point("server.commit.performed")
        for one in batch:
            if one.answer is not None and not one.answer.done():
                one.answer.set_result(None)
        many = self._seq - self._saved_seq >= _EVENTS_PER_STATE
        if many or self._unsaved_bytes >= _BYTES_PER_STATE:
            await self._save()

    def _handle(self, event: ev.Event) -> list[cmd.Command]:
        jobs = self.scheduler.jobs
        commands = self.scheduler.handle(event)
        self.ledger.note(event, jobs)
        for command in commands:
            if isinstance(command, cmd.Launch):
                kinds = self.scheduler.cluster.accelerators
                self.ledger.note_launch(command, event.at, jobs, kinds)
        return commands

    async def _save(self) -> None:
        """Write the state down: nothing changes it meanwhile, as inputs wait for this."""
        await self.workers.write(self._write_state)
        crash.point("server.state.after")
        self._saved_seq, self._unsaved_bytes = self._seq, 0

    def _write_state(self) -> None:
        body = {
            "core": save_state(self.scheduler),
            "ledger": self.ledger.saved(),
            "at": self.clock.now(),
        }
        self.store.save_state(self.token, self._seq, json.dumps(body))

    def _spawn(self, work: "Awaitable[None]") -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("task.failed", exc_info=task.exception())
            self.broken.set()

    # -- what the core wants done ---------------------------------------------------------------

    async def _work_off(self) -> None:
        """Have the engine start and stop leases in the order in which that was asked for."""
        while True:
            for _ in range(_ACTS_AT_ONCE):
                self._spawn((await self._outbox.get())())
            await asyncio.sleep(0)

    def _launch(self, command: cmd.Launch) -> None:
        for lease, placement in zip(command.lease.tolist(), command.on, strict=True):
            job_id = self.scheduler.jobs.ids[placement.job]
            opened = OpenLease(lease, job_id, len(placement.devices), command.until)
            opened.launched_at = self.clock.now()
            self._open(opened)
            self._outbox.put_nowait(partial(self._start_processes, lease, job_id, placement))

    def _open(self, lease: OpenLease) -> None:
        self.leases[lease.number] = lease
        self._load.members += lease.ranks

    async def _start_processes(self, lease: int, job_id: str, placement: Placement) -> None:
        if lease not in self.leases:  # its node was lost meanwhile
            return
        self._tell("lease.started", job=job_id, lease=lease)
        try:
            cluster = self.scheduler.cluster
            order = self.orders.write(lease, self.specs[job_id], placement, cluster)
            await self.engine.launch(order)
        except (FairleadError, OSError) as error:
            # Our failure, not the job's: it does not count against the job's retries.
            ended = Ended(lease, "lost", None, f"it could not be started: {error}")
            self.put(lambda at: self._ended(at, ended, again_s=_START_AGAIN_S))

    def _renew(self, command: cmd.Renew) -> None:
        for lease in command.lease.tolist():
            if lease in self.leases:
                self.leases[lease].until = command.until

    def _suspend(self, command: cmd.Suspend) -> None:
        for lease in command.lease.tolist():
            if lease in self.leases:
                self.leases[lease].leaving = True
            self._outbox.put_nowait(partial(self.engine.stop, lease))

    def _set_timer(self, command: cmd.SetTimer) -> None:
        before = self._timers.pop(command.event, None)
        if before is not None:
            before.cancel()
        if command.at is None or command.at == math.inf:
            return
        ring = self._plan_due if command.event == "PlanDue" else self._round_end
        delay = max(command.at - self.clock.now(), 0.0)
        self._timers[command.event] = asyncio.get_running_loop().call_later(delay, ring)

    def _plan_due(self) -> None:
        self._due_at = self.clock.now()
        self.put(lambda at: [*self._progress(at), *self._measured(at), ev.PlanDue(at)])

    def _round_end(self) -> None:
        self.put(lambda at: [ev.RoundEnd(at)])

    def _progress(self, at: float) -> list[ev.Event]:
        """Return what jobs have told of their steps, as one event."""
        heard = [one for one in self.leases.values() if one.steps > 0]
        if not heard:
            return []
        lease = np.array([one.number for one in heard], dtype=np.int64)
        return [ev.Progress(at, lease, np.array([one.steps for one in heard]))]

    def _measured(self, at: float) -> list[ev.Event]:
        """Return what jobs have told of their speed, where the mechanism looks at it."""
        if not getattr(self.setting.mechanism, "reads_measured", False):
            return []
        return measured(self.leases.values(), at)

    def _compute_plan(self, command: cmd.ComputePlan) -> None:
        self._spawn(self._plan(command))

    async def _plan(self, command: cmd.ComputePlan) -> None:
        began = self.clock.now()
        try:
            plan, memory = await self.workers.plan(
                self.setting.mechanism.plan, command.snapshot, command.memory
            )
        except Exception:
            # A plan that cannot be had must not stop the cluster: what runs goes on for a while.
            log.exception("plan.failed", version=command.version)
            until = self.clock.now() + 60.0
            plan, memory = Plan(NO_INTS, NOTHING, until, until, False), command.memory
        self.decisions_s = [*self.decisions_s[-999:], self.clock.now() - began]
        await self.do(lambda at: [ev.PlanReady(at, command.version, plan, memory)])
        due_at = began if self._due_at is None else self._due_at
        self.rounds_s = [*self.rounds_s[-999:], self.clock.now() - due_at]

    # -- what the engine reports ----------------------------------------------------------------

    async def _listen(self) -> None:
        async for report in self.engine.reports():
            self._report(report)

    def _report(self, report: Report) -> None:
        match report:
            case Ended():
                self._end(report)
            case Progressed(lease, steps):
                if lease in self.leases:
                    self.leases[lease].steps = max(self.leases[lease].steps, steps)
            case NodeDown() | NodeUp() | NodeFound() | DevicesTaken():
                self.nodes.report(report)

    def _end(self, ended: Ended) -> None:
        self.put(lambda at: self._ended(at, ended))

    def _ended(self, at: float, ended: Ended, again_s: float | None = None) -> Sequence[ev.Event]:
        """Return what follows from the end of a lease's processes."""
        open_lease = self.leases.pop(ended.lease, None)
        if open_lease is None:
            return []
        self._load.members -= open_lease.ranks
        jobs = self.scheduler.jobs
        number = jobs.number[open_lease.job]
        spec, saved = self.specs[open_lease.job], float(jobs.saved_steps[number])
        steps = max(saved, ended.steps or 0.0)
        outcome = _OUTCOME[ended.ending]
        if outcome in ("finished", "left"):
            self.costs.note(open_lease, at)
        if outcome == "finished" and ended.steps is None:
            steps = max(steps, open_lease.steps)
        self._tell("lease.ended", job=spec.id, lease=ended.lease, ending=ended.ending, steps=steps)
        codes = ", ".join(str(code) for code in sorted(set(ended.exit_codes)))
        failed = f"it exited with {codes}" if outcome == "failed" and codes else ""
        self.messages[spec.id] = ended.message or failed
        ends = ev.LeasesEnded(at, np.array([ended.lease]), np.array([steps]), outcome)
        active = jobs.state[number] in (JobState.ACTIVE, JobState.HELD)
        if not active or (outcome != "failed" and again_s is None):
            return [ends]
        # Held before its lease ends, so that it is not started again at once.
        if again_s is None:
            failures = self.ledger.of(spec.id).failures + 1
            if failures > spec.retries:
                return [ev.JobFailed(at, spec.id), ends]
            again_s = min(_FIRST_WAIT_S * 2**failures, _LONGEST_WAIT_S)
        self._release_later(spec.id, again_s)
        return [ev.JobHeld(at, spec.id), ends]

    def _release_later(self, job_id: str, wait_s: float) -> None:
        """Let a job that failed try again after a while."""

        def make(at: float) -> Sequence[ev.Event]:
            return [] if job_id in self._held_by_user else [ev.JobReleased(at, job_id)]

        asyncio.get_running_loop().call_later(wait_s, self.put, make)

    def _tell(self, kind: str, **what: object) -> None:
        log.info(kind, **what)
        self._publish(kind, **what)

    def _publish(self, kind: str, **what: object) -> None:
        """Tell whoever follows events."""
        for listener in self.listeners:
            if listener.full():
                listener.get_nowait()
            listener.put_nowait({"event": kind, "at": self.clock.now(), **what})
