"""The live driver: one event at a time into the store, the core, and out to the engine."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from fairlead import failpoints
from fairlead.core import Scheduler, decode_event, encode_event, load_state, save_state
from fairlead.engines.base import (
    DevicesTaken,
    Ended,
    Engine,
    NodeDown,
    NodeJoined,
    NodeUp,
    Progressed,
    Report,
    SupportsForget,
)
from fairlead.live.accounting import Ledger
from fairlead.live.clock import Clock
from fairlead.live.executors import Workers, WorkerThreads
from fairlead.live.inbox import Changes, Input, Make
from fairlead.live.job_spec import JobSpec, read_spec
from fairlead.live.leases.lifecycle import LeaseLauncher
from fairlead.live.leases.measurements import emulated_speed, measured
from fairlead.live.leases.open_leases import Costs, OpenLease
from fairlead.live.leases.orders import Environment, LaunchOrderBuilder
from fairlead.live.leases.outcomes import LeaseOutcomes
from fairlead.live.nodes.inventory import NodeReconciler, require_matching_nodes
from fairlead.live.nodes.lifecycle import NodeController
from fairlead.live.rounds import Rounds
from fairlead.live.scheduling_config import (
    Found,
    Rules,
    config_for_state,
    go_by,
)
from fairlead.live.tenants import check_tenant_change
from fairlead.model import commands as cmd
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.errors import FairleadError, ProtocolError
from fairlead.model.job import Tenant, parse_accelerators
from fairlead.model.speeds.table import SpeedTable
from fairlead.store import Audit, Change, Put, Remove, Store

log = structlog.get_logger("fairlead.live")

_MAX_BATCH = 500
_LONGEST_S = 0.02
"""spent on inputs at a time, before they are written down and reads get their turn"""
_EVENTS_PER_STATE, _BYTES_PER_STATE = 5000, 4 << 20
"""after which the state is saved: what a restart has to go through takes well under a second"""
_LAUNCH_RETRY_S = 5.0
"""after a lease could not be started, for want of room on the disk or the like"""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a live scheduler is made of."""

    cluster: Cluster
    rules: Rules
    remake: Callable[[str], Rules]
    """rules from the text that they had"""
    data: Path
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
    workers: Workers = field(default_factory=WorkerThreads)

    def __post_init__(self) -> None:
        setting = self.setting
        inventory = NodeReconciler(self.store, setting.cluster)
        self._found = Found.read(self.store)
        before = config_for_state(self._found.rules, setting.rules, self.store, setting.remake)
        self.scheduler: Scheduler[Any] = Scheduler(
            inventory.first, before.beliefs, before.mechanism, plan_lead_s=before.plan_lead_s
        )
        self.specs: dict[str, JobSpec] = {}
        self.messages: dict[str, str] = {}
        """job → what its last lease had to say"""
        self.ledger = Ledger()
        self.orders = LaunchOrderBuilder(setting.data, setting.environment)
        self.costs = Costs()
        self.listeners: set[asyncio.Queue[dict[str, object]]] = set()
        self.broken = asyncio.Event()
        """set when the driver cannot go on: the process must end and start again"""
        self.suspended_jobs: set[str] = set()
        """jobs that users have suspended; others that are held wait after a failure"""
        self._seq = 0
        self._saved_seq = 0
        self._ahead = False
        """whether the core has handled what is not yet written"""
        self._unsaved_bytes = 0
        """of events since the last saved state"""
        self._inbox: asyncio.Queue[Input] = asyncio.Queue()
        self.nodes = NodeController(self.scheduler, inventory, self.clock, self)
        self._tasks: set[asyncio.Task[None]] = set()
        self.launching = LeaseLauncher(
            self.scheduler, self.engine, self.orders, self.specs, self.clock
        )
        self.leases = self.launching.open
        self.launching.on_launched = self._on_lease_started
        self.launching.on_launch_failed = self._on_launch_failed
        self._ends = LeaseOutcomes(
            self.scheduler, self.specs, self.ledger, self.suspended_jobs, self
        )
        self.rounds = Rounds(setting.rules.mechanism, self.workers, self.clock, self)
        self.rounds.told = lambda at: [*self.launching.progress(at), *self._measured(at)]
        self._perform: dict[type, Callable[[Any], None]] = {
            cmd.Launch: self.launching.launch,
            cmd.Renew: self.launching.renew,
            cmd.Preempt: self.launching.suspend,
            cmd.SetTimer: self.rounds.set_timer,
            cmd.ComputePlan: lambda command: self._spawn(self.rounds.plan(command)),
            cmd.MergeCopies: lambda _: None,
        }

    # -- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Rebuild the state from the store, take over what runs, and begin."""
        failpoints.point("server.start.locked")
        self.clock.not_before(self._rebuild())
        self._go_by_rules()
        failpoints.point("server.start.rebuilt")
        require_matching_nodes(self.scheduler.cluster, self.setting.cluster)
        self.nodes.reconcile_inventory(self.setting.cluster.nodes)
        leases = self.scheduler.leases
        slots = leases.open
        numbers = leases.lease[slots].tolist()
        self.launching.recover_leases(slots.tolist())
        self._spawn(self._listen())
        self._spawn(self.launching.run_engine_calls(self._spawn))
        await self.engine.adopt(numbers)
        failpoints.point("server.start.adopted")
        for slot in slots[leases.leaving[slots]].tolist():
            await self.engine.stop(int(leases.lease[slot]))
        self._spawn(self._loop())
        self.rounds.resume(self.scheduler)
        self._ends.resume_backoffs()

    async def stop(self) -> None:
        """Stop deciding; jobs go on under their leases."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.rounds.stop()
        self.workers.close()
        self._save_final_state()
        await self.engine.close()

    def _save_final_state(self) -> None:
        """Have the next server replay nothing: it may be of a version that decides otherwise."""
        if self._ahead or self.broken.is_set() or self._seq == self._saved_seq:
            return
        try:
            self._write_state()
        except Exception as error:  # the log is whole, so nothing is lost
            log.warning("state.unwritten", error=str(error))

    def _rebuild(self) -> float:
        """Load the last state and the events after it; return the last event's time."""
        for job_id, document in self.store.documents("job").items():
            self.specs[job_id] = read_spec(document)
        self.suspended_jobs.update(self.store.documents("hold"))
        self.nodes.drained.update(self.store.documents("drain"))
        self._seq, saved = self._found.seq, self._found.state
        last_at = 0.0
        if saved is not None:
            load_state(self.scheduler, saved["core"])
            self.ledger.restore(saved["ledger"])
            last_at = saved["at"]
        self._found.state = None
        self._saved_seq = self._seq
        memory_type = type(self.scheduler.memory)
        for record in self.store.load_events(self._seq):
            event = decode_event(record.body, memory_type)
            try:
                self._handle(event)
            except FairleadError as error:
                raise ProtocolError(
                    f"event {record.seq} of the log cannot be replayed ({error}): another version"
                    " of Fairlead wrote it after its last state; start that version once more and"
                    " end it with SIGTERM, which leaves a state that any version reads"
                ) from None
            self._seq, last_at = record.seq, event.at
            self._unsaved_bytes += len(record.body)
        self.nodes.rebuilt()
        return last_at

    def _go_by_rules(self) -> None:
        """Go on under the rules of now, with a state that says so."""
        rules, before = self.setting.rules, self._found.rules
        if before == rules.name:
            return
        if before is not None:
            go_by(self.scheduler, rules)
            log.info("rules.changed", leaving=self.scheduler.leases.leaving_count)
        rules.keep(self.store, self.token)
        self._write_state()
        self._saved_seq, self._unsaved_bytes = self._seq, 0

    # -- what users ask for ---------------------------------------------------------------------

    async def submit(self, spec: JobSpec, who: str) -> JobSpec:
        """Take in a job; it is on disk when this returns."""
        named: list[JobSpec] = []

        def make(at: float) -> Sequence[ev.Event]:
            spec.validate_command()
            made = spec.named(spec.id or f"j{len(self.scheduler.jobs) + 1}")
            self.scheduler.jobs.require_devices(parse_accelerators(made.accelerators or ())[1])
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

        def changes() -> Sequence[Change]:
            self._ends.cancel_backoff(job_id)
            held = job_id in self.suspended_jobs
            self.suspended_jobs.discard(job_id)
            return [audit, Remove("hold", job_id)] if held else [audit]

        await self.do(lambda at: [ev.JobCancelled(at, job_id)], changes)
        self._publish("job.changed", job=job_id, action=audit.action)

    async def hold(self, job_id: str, who: str) -> None:
        """Let a job wait until it is released."""
        audit = Audit(self.clock.now(), who, "suspend", job_id)

        def changes() -> Sequence[Change]:
            self._ends.cancel_backoff(job_id)
            self.suspended_jobs.add(job_id)  # at once: a retry that is due must not release it
            return [audit, Put("hold", job_id, who)]

        await self.do(lambda at: [ev.JobHeld(at, job_id)], changes)
        self._publish("job.changed", job=job_id, action=audit.action)

    async def release(self, job_id: str, who: str) -> None:
        """Let a held job run again."""
        audit = Audit(self.clock.now(), who, "resume", job_id)

        def changes() -> Sequence[Change]:
            self._ends.cancel_backoff(job_id)
            self.suspended_jobs.discard(job_id)
            return [audit, Remove("hold", job_id)]

        await self.do(lambda at: [ev.JobReleased(at, job_id)], changes)
        self._publish("job.changed", job=job_id, action=audit.action)

    async def set_tenant(self, tenant: Tenant, who: str) -> None:
        """Add a tenant or change one."""
        audit = Audit(self.clock.now(), who, "tenant", tenant.id)

        def make(at: float) -> ev.Event:
            check_tenant_change(self.scheduler, tenant)
            return ev.TenantChanged(at, tenant)

        await self.change(make, audit)

    async def write(self, changes: Sequence[Change]) -> None:
        """Write documents and audit lines that no event goes with."""
        await self.do(lambda _: [], changes)

    def end_streams(self) -> None:
        """Tell whoever follows events that no more will come."""
        self._publish("server.stopping")

    def renew(self, lease: int, told: dict[str, object]) -> dict[str, object] | None:
        """Answer a job's renewal; None when the lease is over."""
        answer = self.launching.answer(lease, told)
        if answer is None:
            return None
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
        for _ in range(_MAX_BATCH - 1):
            if self._inbox.empty() or self.clock.now() > until:
                return
            yield self._inbox.get_nowait()

    async def _take_in(self, first: Input) -> None:
        """Handle what waits, write it down, and only then act on it and answer.

        The core is ahead of the store for a moment. If the store fails the process must end: it
        starts again from what is written.
        """
        now = self.clock.now()
        self._ahead = True
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
            failpoints.point("server.commit.before")
            written = self._seq + 1
            await self.workers.write(self.store.append, self.token, written, bodies, changes)
            self._seq += len(bodies)
            self._unsaved_bytes += sum(map(len, bodies))
            failpoints.point("server.commit.after")
        self._ahead = False
        for command in commands:
            self._perform[type(command)](command)
        if ended and isinstance(self.engine, SupportsForget):
            self.launching.afterwards(partial(self.engine.forget, ended))
        failpoints.point("server.commit.performed")
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
                self.ledger.count_launch(command, event.at, jobs, kinds)
        return commands

    async def _save(self) -> None:
        """Write the state down: nothing changes it meanwhile, as inputs wait for this."""
        await self.workers.write(self._write_state)
        failpoints.point("server.state.after")
        self._saved_seq, self._unsaved_bytes = self._seq, 0

    def _write_state(self) -> None:
        body = {
            "rules": self.setting.rules.name,
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

    # -- what the engine reports ----------------------------------------------------------------

    async def _listen(self) -> None:
        async for report in self.engine.reports():
            self._report(report)

    def _report(self, report: Report) -> None:
        match report:
            case Ended():
                self._end(report)
            case Progressed(lease, steps):
                self.launching.progressed(lease, steps)
            case NodeDown() | NodeUp() | NodeJoined() | DevicesTaken():
                self.nodes.report(report)

    def _end(self, ended: Ended) -> None:
        self.put(lambda at: self._ended(at, ended))

    def _on_launch_failed(self, ended: Ended) -> None:
        # Our failure, not the job's: it does not count against the job's retries.
        self.put(lambda at: self._ended(at, ended, again_s=_LAUNCH_RETRY_S))

    def _ended(self, at: float, ended: Ended, again_s: float | None = None) -> Sequence[ev.Event]:
        closed = self.launching.close(ended.lease)
        if closed is None:
            return []
        self._on_lease_ended(at, closed, ended)
        return self._ends.of(at, closed, ended, again_s=again_s)

    # -- what is told ---------------------------------------------------------------------------

    def _measured(self, at: float) -> list[ev.Event]:
        """Return what jobs have told of their speed, where the mechanism looks at it."""
        if not getattr(self.scheduler.mechanism, "reads_measured", False):
            return []
        return measured(self.leases.values(), at)

    def _on_lease_started(self, lease: OpenLease) -> None:
        self._tell("lease.started", job=lease.job, lease=lease.number)

    def _on_lease_ended(self, at: float, lease: OpenLease, ended: Ended) -> None:
        if ended.ending in ("finished", "left"):
            self.costs.note(lease, at)
        codes = ", ".join(str(code) for code in sorted(set(ended.exit_codes)))
        failed = f"it exited with {codes}" if ended.ending == "failed" and codes else ""
        self.messages[lease.job] = ended.message or failed
        steps = self._ends.steps(lease, ended)
        self._tell(
            "lease.ended", job=lease.job, lease=lease.number, ending=ended.ending, steps=steps
        )

    def _tell(self, kind: str, **what: object) -> None:
        log.info(kind, **what)
        self._publish(kind, **what)

    def _publish(self, kind: str, **what: object) -> None:
        """Tell whoever follows events."""
        for listener in self.listeners:
            if listener.full():
                listener.get_nowait()
            listener.put_nowait({"event": kind, "at": self.clock.now(), **what})
