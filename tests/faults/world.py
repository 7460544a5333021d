"""One simulated cluster: machine, disk, network, nodes, and servers that crash and restart."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

from tests.faults.checks.checks import Checks
from tests.faults.injection import FAULT_HANDLERS
from tests.faults.liveness import LivenessChecker
from tests.faults.machine.disk import Disk
from tests.faults.machine.machine import Machine, Process
from tests.faults.machine.network import Network
from tests.faults.machine.virtual_time import StalledError, VirtualLoop
from tests.faults.nodes import SimulatedNodes
from tests.faults.operators import cancel, resume, return_node, set_tenant, submit
from tests.faults.scenario import ENDLESS, Fault, Scenario
from tests.faults.servers import ServerLifecycle
from tests.faults.system.jobs import Jobs
from tests.faults.system.patches import on_simulated_machine
from tests.faults.system.server import Server, ServerDiedError

from fairlead.core.jobs import JobState
from fairlead.model.lease import SLOT_LIMIT

_MAX_RUN_S = 2000.0
"""virtual seconds after which all jobs must have ended"""
_CLEANUP_S = 2.0
"""seconds within which a server removes the files of ended leases"""
_NODES_RETURN_S = 60
"""seconds after the last fault within which all nodes are used again"""
_EPOCH = 1_700_000_000.0


class FaultWorld:
    """Runs one scenario: starts the server, submits the jobs, injects the faults, checks."""

    def __init__(self, plan: Scenario, home: Path) -> None:
        self.plan = plan
        self.rng = plan.rng
        self.home = home
        self.loop = VirtualLoop()
        self.machine = Machine(self.loop, self.rng)
        self.checks = Checks(self.loop.stop, self.loop.time)
        self.network = Network(self.machine, self.rng)
        self.disk = Disk(self.machine, self.rng)
        self.jobs = Jobs(self.machine, self.checks, self.rng)
        self.wall_offset = _EPOCH
        self.background: set[asyncio.Task[None]] = set()
        self.quiet = False
        """whether fault injection has stopped"""
        self.dies_at_begin: float | None = None
        """downtime of the server after it is killed as the next keeper begins"""
        self.refuse_next_config = False
        """whether a start with unusable scheduling configs precedes the next server"""
        self.dies_at_point: int | None = None
        """named points that keepers and jobs pass before one of them is killed there"""
        self.dies_at_merge: int | None = None
        """named points of merges that the server passes before it is killed at one"""
        self.nodes = SimulatedNodes(self, plan.cluster)
        self.servers = ServerLifecycle(self)
        self._liveness = LivenessChecker(self)
        self._connect()

    def _connect(self) -> None:
        """Set initial delays and route the callbacks of disk, network, machine and jobs."""
        self.disk.slow = self.plan.slow_disk
        self.network.trouble = self.plan.trouble
        self.disk.on_replace = lambda path: self.checks.jobs.replaced(path, self.machine.me)
        self.disk.on_write = lambda path: self.checks.jobs.written(path, self.machine.me)
        self.network.on_trouble = self.disk.on_full = self._touch_process
        self.disk.on_server = self._gate
        self.machine.on_missed_stop = lambda member: self.checks.require(
            False, f"{member.name}: the stop signal was not forwarded"
        )
        self.jobs.leave_requested = self._leave_requested
        self.checks.copies.open_leases = self._open_leases
        self.jobs.cut_node = lambda node, for_s: self.loop.call_soon(self.nodes.cut, node, for_s)
        self.jobs.cancel = lambda job, after_s: self.loop.call_later(
            after_s, self.client, cancel, job
        )
        self.loop.set_exception_handler(self._unexpected)

    @property
    def server(self) -> Server | None:
        """The running server, None while it is down."""
        return self.servers.server

    def run(self) -> None:
        """Run the scenario to its end or to the first violation."""
        patches = on_simulated_machine(
            self.machine,
            self.disk,
            self.network,
            self.jobs,
            point=self._point,
            wall=lambda: self.loop.time() + self.wall_offset,
            events_per_state=self.plan.events_per_state,
        )
        asyncio.set_event_loop(self.loop)
        with patches:
            try:
                main = self.loop.create_task(self._main())
                self.loop.run_until_complete(main)
            except StalledError as error:
                self.loop.reset_turns()
                self.checks.require(False, str(error))
            except RuntimeError:  # the loop was stopped at a violation
                assert self.checks.violation is not None
            finally:
                self._clean_up()

    def _clean_up(self) -> None:
        self.touch()
        self.machine.end_all()
        if self.server is not None:
            self.servers.drop()
        pending = asyncio.all_tasks(self.loop)
        for task in pending:
            task.cancel()
        self.checks.stop = lambda: None
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()  # consumes a pending stop request
        self.loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        self.loop.close()

    async def _main(self) -> None:
        plan, loop = self.plan, self.loop
        self.servers.start()
        for name in sorted(plan.limits):
            self.client(set_tenant, name, 1.0)
        for at, spec in plan.jobs:
            loop.call_at(at, self.client, submit, spec)
        for fault in plan.faults:
            loop.call_at(fault.at, self._inject, fault)
        self._liveness.check()
        await asyncio.sleep(plan.quiet_at)
        self._heal()
        while not (self._all_ended() and self._all_known()):
            if loop.time() > _MAX_RUN_S:
                assert self.server is not None
                self.checks.require(not self.server.clients, "a call was never answered")
                self.checks.server.ended(self.server.live, self._node_ids())
                return
            await asyncio.sleep(1.0)
            self._cancel_endless()
        server = self.server
        assert server is not None
        self.checks.server.ended(server.live, self._node_ids())
        await asyncio.sleep(_CLEANUP_S)
        await self._check_all_used()
        if self.server is server:
            self._check_clean(server)

    def _check_clean(self, server: Server) -> None:
        """Require that ended leases have left no files and no unreaped keepers."""
        keepers = self.machine.keepers.values()
        late = self.loop.time() - _CLEANUP_S
        allowed = {keeper.lease for keeper in keepers if keeper.alive or keeper.ended_at > late}
        allowed |= server.engine.lost_leases | set(server.live.leases)
        children = [keeper for keeper in keepers if keeper.started_by == server.number]
        self.checks.server.nothing_left(self.home / "leases", allowed, children)

    def _node_ids(self) -> set[str]:
        return {node.id for node in self.nodes.cluster.nodes}

    def _all_known(self) -> bool:
        assert self.server is not None
        known = {node.id for node in self.server.live.scheduler.cluster.nodes}
        return self._node_ids() <= known

    async def _check_all_used(self) -> None:
        """Require that all nodes are used again soon."""
        for _ in range(_NODES_RETURN_S):
            server = self.server
            if server is not None and server.started and self.checks.server.all_used(server.live):
                return
            await asyncio.sleep(1.0)
        self.checks.require(False, "an available node is never used again")

    def _cancel_endless(self) -> None:
        """Cancel the jobs that would never end."""
        if self.server is None or not self.server.started:
            return
        live = self.server.live
        for job_id, spec in live.specs.items():
            number = live.scheduler.jobs.number.get(job_id)
            if spec.name != ENDLESS.name or number is None:
                continue
            if live.scheduler.jobs.state[number] in (JobState.ACTIVE, JobState.HELD):
                self.client(cancel, job_id)

    def _inject(self, fault: Fault) -> None:
        self.checks.note(fault)
        FAULT_HANDLERS[fault.what](self, fault)

    def _all_ended(self) -> bool:
        server = self.server
        if server is None or not server.started or server.clients:
            return False
        jobs = server.live.scheduler.jobs
        waiting = (JobState.ACTIVE, JobState.HELD)
        return not any(state in waiting for state in jobs.state[: len(jobs)].tolist())

    def _heal(self) -> None:
        """Stop fault injection and undo suspensions, drains and cordons."""
        self.quiet = True
        self.disk.full = False
        self.disk.slow = self.network.trouble = 0.0
        self.network.cut_jobs.clear()
        self.jobs.slow_s.clear()
        self.jobs.fails_to_start = 0
        self.jobs.late = self.dies_at_point = self.dies_at_begin = self.dies_at_merge = None
        self.nodes.heal()
        if self.server is not None:
            self.server.trouble = 0.0
            self.server.dies_at = self.server.next_write = None
            self.server.dies_at_stop, self.server.plans_fail = False, 0
            self.server.on_moves = None
        # Includes jobs and nodes whose resume or return was in flight when a server died.
        for node in sorted(self.checks.ever_closed):
            self.client(return_node, node)
        for job_id in sorted(self.checks.may_be_held):
            self.client(resume, job_id)

    # -- callbacks of the simulated parts -------------------------------------------------------

    def _point(self, name: str) -> None:
        """Pass a named point: the server has a gate there, other processes may be killed."""
        me = self.machine.me
        if name == "keeper.exit.before" and me is not None:
            alive = [child.name for child in me.children if child.alive]
            self.checks.require(not alive, f"{me.name} reports the end while {alive} are alive")
        if me is None:
            if name.startswith("server.merge.") and self.dies_at_merge is not None:
                self._pass_merge()
            self._gate()
        elif name == "keeper.begins" and me.lease in self.jobs.slow_to_begin:
            self.machine.threads.sleep(self.jobs.slow_to_begin[me.lease])
        elif name == "keeper.begins" and self.dies_at_begin is not None:
            down_s, self.dies_at_begin = self.dies_at_begin, None
            self._touch_process(me)
            self.loop.call_soon(self.kill_server, down_s)
            self.machine.threads.sleep(2.0 * down_s)
        elif name == "keeper.begins" and self.network.trouble:
            self.machine.threads.sleep(self.rng.choice((0.0, 0.0, 0.3)))
        elif name == "job.commit.locked" and me.nodes & self.machine.unreachable:
            # The lease may be lost: the next lease raises the fence now, or waits for the lock.
            self.machine.threads.sleep(self.rng.uniform(0.0, 3.0))
        elif self.dies_at_point is not None:
            self.dies_at_point -= 1
            if self.dies_at_point < 0:
                self.dies_at_point = None
                self._touch_process(me)
                if me.rank >= 0:
                    self.checks.crashed.add(me.lease)
                self.machine.kill(me)
                self.machine.threads.pause()

    def _pass_merge(self) -> None:
        """Pass a named point of a merge, at which the server may be killed."""
        assert self.server is not None
        assert self.dies_at_merge is not None
        self.dies_at_merge -= 1
        if self.dies_at_merge < 0:
            self.dies_at_merge, self.server.dies_at = None, 0

    def _gate(self) -> None:
        if self.server is not None:
            self.server.gate()

    def _leave_requested(self, lease: int) -> bool | None:
        if self.server is None or not self.server.started:
            return None
        if lease in self.server.engine.lost_leases:  # the engine stops lost leases by itself
            return None
        leases, slot = self.server.live.scheduler.leases, lease & (SLOT_LIMIT - 1)
        if slot >= len(leases.lease) or leases.lease[slot] != lease:
            return None
        return bool(leases.leaving[slot])

    def _open_leases(self) -> Collection[int]:
        return () if self.server is None else self.server.live.leases.keys()

    def _unexpected(self, _: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, ServerDiedError):
            return
        self.checks.require(False, f"unexpected: {context.get('message')}: {error!r}")

    def _touch_process(self, process: Process) -> None:
        self.checks.touch([process.lease])

    # -- interface for faults and operator actions ----------------------------------------------

    def kill_server(self, down_s: float) -> None:
        """Kill the server; another one starts after a delay."""
        self.servers.kill(down_s)

    def start_another(self) -> None:
        """Try to start another server beside the running one."""
        self.servers.start_another()

    def client(self, call: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Call the server; retry later while it is down."""
        server = self.server
        if server is None or not server.started:
            self.loop.call_later(0.5, self.client, call, *arguments)
            return
        server.watch(asyncio.ensure_future(self._call(server, call, *arguments)))

    async def _call(
        self, server: Server, call: Callable[..., Awaitable[None]], *arguments: Any
    ) -> None:
        try:
            await call(self, server, *arguments)
        except asyncio.CancelledError:
            if self.quiet:  # no fault is left, so the retry is answered
                self.loop.call_later(0.5, self.client, call, *arguments)
            raise

    def touch(self) -> None:
        """Mark all running leases as disturbed: they may end in another way."""
        self.checks.touch(self.jobs.leases())
        if self.server is not None:
            self.checks.touch(self.server.live.leases)

    def touch_leaving(self) -> None:
        """Mark leases that a server crash disturbs: starting or leaving ones.

        The next server considers a lease lost if its keeper is not alive yet, and leaving members
        may be killed before the request reaches them. All other leases must survive; the checks
        after the restart verify this.
        """
        if self.server is not None:
            running = {member.lease for member in self.jobs.members()}
            leases = self.server.live.leases.values()
            self.checks.touch(
                lease.number for lease in leases if lease.leaving or lease.number not in running
            )
