"""The live driver: handles one batch of inputs at a time, persists it, then acts on it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fairlead import failpoints
from fairlead.core.queries import Queries
from fairlead.engines.base import (
    DevicesRead,
    DevicesTakenReport,
    Ended,
    Engine,
    NodeDown,
    NodeJoined,
    NodeUp,
    Progressed,
    Report,
    Saved,
    SupportsForget,
)
from fairlead.live.accounting import JobCounters
from fairlead.live.clock import Clock
from fairlead.live.config import LiveConfig
from fairlead.live.copies.merges import CopyMerges
from fairlead.live.event_stream import EventStream
from fairlead.live.executors import BackgroundTasks, Workers, WorkerThreads
from fairlead.live.history.recorder import HistoryRecorder
from fairlead.live.inputs.batches import BatchProcessor
from fairlead.live.inputs.inbox import HandledBatch, Inbox, InboxItem
from fairlead.live.job_recovery import StoredJobs
from fairlead.live.job_requests.rejections import Reject, reject_job
from fairlead.live.job_spec import JobSpec
from fairlead.live.jobs import JobController
from fairlead.live.journal import Journal
from fairlead.live.leases.claims import ClaimChecker
from fairlead.live.leases.forced_kills import ForcedKills
from fairlead.live.leases.hand_overs import HandOvers
from fairlead.live.leases.lifecycle import LeaseLauncher
from fairlead.live.leases.open_leases import OpenLease
from fairlead.live.leases.orders import LaunchOrderBuilder
from fairlead.live.leases.outcomes import LeaseOutcomes
from fairlead.live.leases.overheads import RestartTimes
from fairlead.live.leases.parked_jobs import ParkedJobs
from fairlead.live.leases.pins import LeasePins
from fairlead.live.leases.registry import LeaseRegistry
from fairlead.live.leases.renewal import Renewal, RenewalAnswer
from fairlead.live.leases.restored import end_restored_leases
from fairlead.live.nodes.inventory import NodeReconciler, require_matching_nodes
from fairlead.live.nodes.lease_use import LeaseUse
from fairlead.live.nodes.lifecycle import NodeController
from fairlead.live.planning.guards import PlugInGuard
from fairlead.live.reconfiguration.decision import read_decision
from fairlead.live.reconfiguration.switch import PolicySwitch
from fairlead.live.rounds import RoundTimers
from fairlead.live.scheduling_config import SavedState, config_for_state
from fairlead.live.speeds.controller import SpeedController
from fairlead.live.speeds.measurements import measured, with_emulated_speed
from fairlead.live.speeds.memory import DeviceMemory
from fairlead.live.tenants import TenantController
from fairlead.live.timeline.reader import TimelineReader
from fairlead.live.timeline.recorder import TimelineRecorder
from fairlead.model import commands as cmd
from fairlead.model import events as ev
from fairlead.store import Change, Store, User


class Live:
    """Owns the scheduler; every change goes through its inbox."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        config: LiveConfig,
        token: int,
        *,
        clock: Clock | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.store, self.engine, self.config, self.token = store, engine, config, token
        self.clock = clock or Clock()
        self._workers = workers or WorkerThreads()
        self._saved = SavedState.read(store)
        inventory = NodeReconciler(store, config.cluster)
        decision = read_decision(store, config)
        scheduling = decision.config
        before = config_for_state(self._saved.config, scheduling, store, config.load_scheduling)
        guard = PlugInGuard((*scheduling.plug_ins, *before.plug_ins))
        self.scheduler = before.make_scheduler(inventory.initial_cluster, guard.refill)
        self.queries = Queries(self.scheduler)
        self.specs: dict[str, JobSpec] = {}
        self.suspended_jobs: set[str] = set()
        """jobs that users have suspended; other held jobs are in backoff"""
        self.counters = JobCounters(self.queries)
        self.inbox = Inbox(self.clock)
        self.stream = EventStream(self.clock)
        self.journal = Journal(
            store,
            token,
            self.scheduler,
            self.counters,
            config=scheduling,
            workers=self._workers,
            clock=self.clock,
        )
        self.nodes = NodeController(self.scheduler, inventory, self.clock, self.inbox)
        self.tenants = TenantController(self.scheduler, store, self.clock, self.inbox)
        self.orders = LaunchOrderBuilder(config.data, config.environment, self.counters.held_s)
        checker = ClaimChecker(
            self.queries,
            self.specs,
            self.counters,
            believed=scheduling.beliefs,
            emulated=config.emulated,
        )
        self.suspicious_reports = checker.reports
        self._registry = LeaseRegistry(self.queries, self.clock, checker)
        self.leases = self._registry.open
        self.lease_use = LeaseUse(self.scheduler, self.queries, self.leases)
        self.history = HistoryRecorder(
            store, token, self.counters, self.leases, clock=self.clock, workers=self._workers
        )
        self._timeline = TimelineRecorder(
            store, token, self.counters, self.queries, clock=self.clock, workers=self._workers
        )
        self.timeline = TimelineReader(store, self._timeline)
        self._lease_outcomes = LeaseOutcomes(
            self.queries,
            self.specs,
            self.counters,
            self.suspended_jobs,
            self._registry,
            self.history,
            notified_urls=config.notified_urls,
            checkpoint_dir=self.orders.checkpoint_dir,
            clock=self.clock,
            inbox=self.inbox,
            stream=self.stream,
        )
        self.ends = self._lease_outcomes.ends
        self.overheads = self._lease_outcomes.overheads
        self._restarts = RestartTimes(self.leases)
        self.messages = self._lease_outcomes.messages
        self.jobs = JobController(
            self.scheduler,
            self.specs,
            self.suspended_jobs,
            self._lease_outcomes,
            clock=self.clock,
            inbox=self.inbox,
            stream=self.stream,
        )
        self._merges = CopyMerges(self.orders, self.leases, self.queries, self.inbox)
        self._launcher = LeaseLauncher(
            self.scheduler,
            self.queries,
            engine,
            self.orders,
            self.specs,
            self._registry,
            self._merges,
            clock=self.clock,
            stream=self.stream,
            on_launch_failed=self._lease_outcomes.launch_failed,
        )
        mechanism = scheduling.mechanism
        self._pins = LeasePins(self.queries, self._registry, self.specs, mechanism)
        self.speeds = SpeedController(
            self.scheduler, self.leases, self.clock, self.inbox, learns=config.learns_speeds
        )
        self._parked = ParkedJobs(
            self.scheduler, self.queries, engine, self._launcher, self.nodes.drained
        )
        self._hand_overs = HandOvers(
            self.scheduler,
            self.queries,
            engine,
            self._launcher,
            self.orders,
            self.specs,
            self._registry,
            drained=self.nodes.drained,
            readings=None if config.emulated is not None else self.nodes.health.readings,
        )
        self._kills = ForcedKills(store, self._launcher, self._registry, self.inbox)
        self.rounds = RoundTimers(
            mechanism,
            guard,
            self._workers,
            self.clock,
            self.inbox,
            self._reports,
            self._pins.events,
            self._parked.prefer_their_devices,
            self._hand_overs.prepare,
            lambda: self.scheduler.round_end_at,
        )
        self.policy = PolicySwitch(
            config,
            decision,
            self.scheduler,
            self.journal,
            self.rounds,
            guard,
            parts=(self._registry, self._pins),
            clock=self.clock,
            inbox=self.inbox,
            stream=self.stream,
        )
        self.tasks = BackgroundTasks()
        self._memory = DeviceMemory(
            self.queries, self.orders.log_dir, self._workers, self.inbox, self.tasks
        )
        self._perform: dict[type, Callable[[Any], None]] = {
            cmd.Launch: self._launcher.launch,
            cmd.Renew: self._launcher.renew,
            cmd.Preempt: self._launcher.preempt,
            cmd.SetTimer: self.rounds.set_timer,
            cmd.ComputePlan: lambda command: self.tasks.spawn(self.rounds.plan(command)),
            cmd.MergeCopies: lambda command: self.tasks.spawn(
                self._merges.merge_early(self.queries.job_id(command.job))
            ),
        }
        self._batches = BatchProcessor(
            self._handle,
            self.journal,
            self.ends,
            self._perform,
            self._performed,
            clock=self.clock,
            inbox=self.inbox,
            stream=self.stream,
        )

    # -- start and stop -------------------------------------------------------------------------

    async def start(self) -> None:
        """Restore the state from the store, adopt running leases, and begin to schedule."""
        failpoints.point("server.start.locked")
        self.clock.not_before(self._recover())
        self._switch_config()
        failpoints.point("server.start.rebuilt")
        require_matching_nodes(self.scheduler.cluster, self.config.cluster)
        self.nodes.reconcile_inventory(self.config.cluster.nodes)
        leases = self.queries.open_leases()
        self._registry.recover(self.scheduler.round_end_at)
        self.tasks.spawn(self._listen())
        self.tasks.spawn(self._launcher.run_engine_calls(self.tasks.spawn))
        await self.engine.adopt([lease.number for lease in leases])
        self._lease_outcomes.count_saved_steps(self.orders.checkpoint_dir)
        failpoints.point("server.start.adopted")
        for lease in leases:
            if lease.leaving:
                await self.engine.stop(lease.number)
        self._kills.resume()
        self.tasks.spawn(self._loop())
        self.tasks.spawn(self.history.run())
        self.tasks.spawn(self._timeline.run())
        self.rounds.resume(self.scheduler)
        self._lease_outcomes.resume_backoffs()
        self.ends.resume(self.store, self.tasks.spawn)

    async def stop(self) -> None:
        """Stop scheduling; jobs continue under their leases."""
        await self.tasks.cancel()
        self.rounds.stop()
        self._workers.close()
        if not self.tasks.broken.is_set():
            self.history.save_all()
            self._timeline.save_all()
            self.journal.save_final_state()
        await self.engine.close()

    def _recover(self) -> float:
        """Restore jobs, nodes and the scheduler; return the time of the last event."""
        stored = StoredJobs.read(self.store, self.config.data)
        self.specs.update(stored.specs)
        self.suspended_jobs.update(self.store.documents("hold"))
        self.nodes.drained.update(self.store.documents("drain"))
        self.nodes.health.restore(self.store)
        self.history.restore()
        self.messages.update(self.history.results.messages())
        last_at = self.journal.restore(self._saved, self._handle)
        self._timeline.restore()
        end_restored_leases(
            self.store,
            last_at,
            self.queries,
            self.nodes,
            self._lease_outcomes,
            self.inbox,
            self.orders.checkpoint_dir,
        )
        stored.fail_damaged(self.queries, self.specs, self.messages, self.inbox)
        self.nodes.restore_down_nodes()
        return last_at

    def _switch_config(self) -> None:
        """Decide under the current scheduling config, and save a state that names it."""
        self.policy.switch_at_start(self._saved.config)

    # -- requests of operators and members ------------------------------------------------------
    async def force_cancel(
        self, job_ids: Sequence[str], user: User, reject: Reject = reject_job
    ) -> None:
        """Cancel jobs, unless they have ended, and kill their processes without their grace."""
        promise = partial(self._kills.promise, user=user)
        for job_id in await self.jobs.changes.cancel(job_ids, user, promise, reject):
            self._kills.carry_out(job_id)

    async def write(self, changes: Sequence[Change]) -> None:
        """Persist documents and audit entries without an event."""
        await self.inbox.submit(lambda _: [], changes)

    def renew(self, lease: int, renewal: Renewal) -> RenewalAnswer | None:
        """Answer a member's renewal; None if the lease has ended."""
        answer = self._registry.answer_renewal(lease, renewal)
        self.speeds.lease_renewed(lease)
        self._hand_overs.prepare_last_lease(lease)
        return with_emulated_speed(answer, self.config.emulated, self.queries, self.specs, lease)

    def pins(self, lease: OpenLease) -> bool:
        """Return whether no plan may preempt a lease now."""
        return self._pins.keeps(lease, self.clock.now())

    # -- the loop -------------------------------------------------------------------------------

    async def _loop(self) -> None:
        while True:
            await self._process_batch(await self.inbox.get())

    async def _process_batch(self, first: InboxItem) -> None:
        await self._batches.process(first)
        await self.policy.carry_out_requests(self._perform)

    def _performed(self, batch: HandledBatch) -> None:
        """Forget ended leases and parked processes, once the commands of a batch are performed."""
        if batch.ended and isinstance(self.engine, SupportsForget):
            self._launcher.after_engine_calls(partial(self.engine.forget, batch.ended))
        self._parked.end_unneeded()
        self._hand_overs.end_unneeded()

    def _handle(self, event: ev.Event) -> list[cmd.Command]:
        commands = self.scheduler.handle(event)
        self.counters.record(event)
        for command in commands:
            if isinstance(command, cmd.Launch):
                self.counters.record_launch(command, event.at)
        return commands

    def _reports(self, at: float) -> list[ev.Event]:
        """Return the reports of running leases that the core should have before a plan."""
        events = [*self._registry.progress_events(at), *self._pins.events(at)]
        events += self.speeds.measurements.events(at)
        if self.scheduler.capabilities.reads_measured:
            events += measured(self.leases.values(), self.lease_use, at)
        if self.scheduler.capabilities.reads_restarts:
            events += self._restarts.events(at)
        return events

    # -- reports of the engine ------------------------------------------------------------------

    async def _listen(self) -> None:
        async for report in self.engine.reports():
            self._report(report)

    def _report(self, report: Report) -> None:
        match report:
            case Ended():
                self._memory.lease_ended(report)
                self._lease_outcomes.lease_ended(report)
            case Saved():
                self._lease_outcomes.steps_saved(report)
            case Progressed(lease, steps):
                self._registry.record_printed_steps(lease, steps)
            case DevicesRead():
                self.lease_use.record(report)
                self.nodes.report(report)
            case NodeDown() | NodeUp() | NodeJoined() | DevicesTakenReport():
                self.nodes.report(report)
