"""The world of one run: a machine, its disk and network, and servers that come and go."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.bad_config import refuse
from tests.faults.checks.checks import Checks
from tests.faults.injection import FAULT_HANDLERS
from tests.faults.liveness import Watch
from tests.faults.machine.disk import Disk
from tests.faults.machine.machine import Machine, Process
from tests.faults.machine.network import Network
from tests.faults.machine.virtual_time import StalledError, VirtualLoop
from tests.faults.nodes import SimulatedNodes
from tests.faults.operators import (
    cancel,
    give_back,
    release,
    set_tenant,
    submit,
)
from tests.faults.record import CHECKPOINT_S
from tests.faults.scenario import (
    ENDLESS,
    SPEEDS,
    Fault,
    Scenario,
)
from tests.faults.system.jobs import Jobs
from tests.faults.system.patches import on_simulated_machine
from tests.faults.system.server import Server, ServerDiedError
from tests.faults.system.store import Memory, MemoryStore

from fairlead.core.jobs import JobState
from fairlead.live.driver import Setting
from fairlead.live.job_spec import JobSpec
from fairlead.model.errors import FairleadError, ProtocolError
from fairlead.model.lease import SLOTS
from fairlead.server.access.rate_limits import Limits, RateLimiters
from fairlead.server.access.tokens import AuthError, Tokens
from fairlead.server.api.renewals import renewed
from fairlead.server.api.schemas import Renewal
from fairlead.store import Store

_LONGEST_S = 2000.0
"""of virtual time until all jobs must have ended"""
_TIDIES_S = 2.0
"""in which a server clears away what is left of leases that have ended"""
_RETURNS_S = 60
"""in which all nodes are used again"""
_SOON_S = 1.5
"""in which a member finds a server that is up again"""
_EPOCH = 1_700_000_000.0


class World:
    """One simulated cluster and what happens to it."""

    def __init__(self, plan: Scenario, home: Path) -> None:
        self.plan = plan
        self.rng = plan.rng
        self.loop = VirtualLoop()
        self.machine = Machine(self.loop, self.rng)
        self.checks = Checks(self.loop.stop, self.loop.time)
        self.network = Network(self.machine, self.rng)
        self.disk = Disk(self.machine, self.rng)
        self.jobs = Jobs(self.machine, self.checks, self.rng)
        self.memory = Memory()
        self.home = home
        self.wall_offset = _EPOCH
        self.server: Server | None = None
        self._last: Server | None = None
        self._tokens = Tokens({}, b"a secret")
        self._tried: set[int] = set()
        """leases of which a renewal with a wrong token was tried"""
        self._gates = RateLimiters(Limits(), self.loop.time)
        self.background: set[asyncio.Task[None]] = set()
        self.quiet = False
        self.nodes = SimulatedNodes(self, plan.cluster)
        self._watch = Watch(self)
        self.dies_at_begin: float | None = None
        """for how long the server is away when the next keeper has begun, and started nobody"""
        self.tries_other_configs = False
        """whether somebody tries to start the next server under rules that it must refuse"""
        self.dies_at_point: int | None = None
        """how many more named points keepers and jobs pass before one dies there"""
        self.setting = Setting(
            cluster=plan.cluster,
            rules=plan.rules[0],
            remake=lambda text: next(one for one in plan.rules if one.text == text),
            data=home,
            environment=self._environment,
        )
        self.disk.slow = plan.slow_disk
        self.network.trouble = plan.trouble
        self.disk.on_replace = lambda path: self.checks.jobs.replaced(path, self.machine.me)
        self.disk.on_write = lambda path: self.checks.jobs.written(path, self.machine.me)
        self.network.on_trouble = self.disk.on_full = self._touch_one
        self.disk.on_server = self._gate
        self.machine.on_missed_stop = lambda one: self.checks.require(
            False, f"{one.name} was not told that it is to stop"
        )
        self.jobs.asked = self._asked
        self.jobs.cut_node = lambda node, for_s: self.loop.call_soon(self.nodes.cut, node, for_s)
        self.jobs.cancel = lambda job, after_s: self.loop.call_later(
            after_s, self.client, cancel, job
        )
        self.loop.set_exception_handler(self._unexpected)

    def run(self) -> None:
        """Let everything happen."""
        shims = on_simulated_machine(
            self.machine,
            self.disk,
            self.network,
            self.jobs,
            point=self._point,
            wall=lambda: self.loop.time() + self.wall_offset,
            events_per_state=self.plan.events_per_state,
        )
        asyncio.set_event_loop(self.loop)
        with shims:
            try:
                main = self.loop.create_task(self._main())
                self.loop.run_until_complete(main)
            except StalledError as error:
                self.loop.count_anew()
                self.checks.require(False, str(error))
            except RuntimeError:  # the loop was stopped at a violation
                assert self.checks.violation is not None
            finally:
                self._clean_up()

    def _clean_up(self) -> None:
        self.touch()
        self.machine.end_all()
        if self.server is not None:
            self._drop_server()
        pending = asyncio.all_tasks(self.loop)
        for task in pending:
            task.cancel()
        self.checks.stop = lambda: None
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()  # whether it was to stop or not, it has now
        self.loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        self.loop.close()

    async def _main(self) -> None:
        plan, loop = self.plan, self.loop
        self._start_server()
        for name in sorted(plan.limits):
            self.client(set_tenant, name, 1.0)
        for at, spec in plan.jobs:
            loop.call_at(at, self.client, submit, spec)
        for happening in plan.happenings:
            loop.call_at(happening.at, self._happen, happening)
        self._watch.look()
        await asyncio.sleep(plan.quiet_at)
        self._heal()
        while not (self._all_ended() and self._all_known()):
            if loop.time() > _LONGEST_S:
                assert self.server is not None
                self.checks.require(not self.server.clients, "a call was never answered")
                self.checks.server.ended(self.server.live, self._known())
                return
            await asyncio.sleep(1.0)
            self._cancel_endless()
        server = self.server
        assert server is not None
        self.checks.server.ended(server.live, self._known())
        await asyncio.sleep(_TIDIES_S)
        await self._all_used()
        if self.server is server:
            keepers = self.machine.keepers.values()
            late = loop.time() - _TIDIES_S
            there = {one.lease for one in keepers if one.alive or one.ended_at > late}
            there |= server.engine.given_up | set(server.live.leases)
            mine = [one for one in keepers if one.started_by == server.number]
            self.checks.server.nothing_left(self.home / "leases", there, mine)

    def _known(self) -> set[str]:
        return {node.id for node in self.nodes.cluster.nodes}

    def _all_known(self) -> bool:
        assert self.server is not None
        known = {node.id for node in self.server.live.scheduler.cluster.nodes}
        return self._known() <= known

    async def _all_used(self) -> None:
        """Require that no node is lost for ever: all are used again soon."""
        for _ in range(_RETURNS_S):
            server = self.server
            if server is not None and server.started and self.checks.server.all_used(server.live):
                return
            await asyncio.sleep(1.0)
        self.checks.require(False, "a node that is there is never used again")

    def _cancel_endless(self) -> None:
        """End the jobs that would never do so themselves."""
        if self.server is None or not self.server.started:
            return
        live = self.server.live
        for job_id, spec in live.specs.items():
            number = live.scheduler.jobs.number.get(job_id)
            if spec.name != ENDLESS.name or number is None:
                continue
            if live.scheduler.jobs.state[number] in (JobState.ACTIVE, JobState.HELD):
                self.client(cancel, job_id)

    def _happen(self, happening: Fault) -> None:
        self.checks.note(happening)
        FAULT_HANDLERS[happening.what](self, happening)

    def _all_ended(self) -> bool:
        server = self.server
        if server is None or not server.started or server.clients:
            return False
        jobs = server.live.scheduler.jobs
        waits = (JobState.ACTIVE, JobState.HELD)
        return not any(state in waits for state in jobs.state[: len(jobs)].tolist())

    def _heal(self) -> None:
        """Let nothing go wrong from now on, and undo what operators have asked for."""
        self.quiet = True
        self.disk.full = False
        self.disk.slow = self.network.trouble = 0.0
        self.network.cut_jobs.clear()
        self.jobs.slow_s.clear()
        self.jobs.fails_to_start = 0
        self.jobs.late = self.dies_at_point = self.dies_at_begin = None
        self.nodes.heal()
        if self.server is not None:
            self.server.trouble = 0.0
            self.server.dies_at = self.server.next_write = None
            self.server.dies_at_stop, self.server.plans_fail = False, 0
            self.server.on_moves = None
        # Also those whose release or return was under way when a server died.
        for node in sorted(self.checks.turned):
            self.client(give_back, node)
        for job_id in sorted(self.checks.may_be_held):
            self.client(release, job_id)

    # -- the server -----------------------------------------------------------------------------

    def _environment(self, lease: int, spec: JobSpec, kinds: tuple[str, ...]) -> dict[str, str]:
        return {
            "FAIRLEAD_URL": "http://simulated",
            "FAIRLEAD_JOB_TOKEN": self._tokens.lease_token(lease),
            "FAIRLEAD_LEASE_S": f"{2 * self.plan.round_s:g}",
            "FAIRLEAD_EMULATED_STEPS_PER_S": f"{SPEEDS.speed(spec.workload, kinds):.17g}",
            "FAIRLEAD_CHECKPOINT_S": f"{CHECKPOINT_S:g}",
        }

    def _start_server(self) -> None:
        if self.server is not None:
            return
        if self.tries_other_configs:
            self.tries_other_configs = False
            refuse(self._open_store, self.setting, self.checks)
        store = self._open_store()
        self.checks.note("a server starts")
        self.machine.servers += 1
        trouble = 0.0 if self.quiet else self.plan.trouble
        rules = self.plan.rules[(self.machine.servers - 1) % len(self.plan.rules)]
        self.setting = replace(self.setting, rules=rules, cluster=self.nodes.has())
        server = Server(store, self.setting, self.checks, self.rng, trouble=trouble)
        self.server = server
        server.starts_at = self.loop.time()
        server.number = self.machine.servers
        server.on_death = lambda _: self.kill_server(self.rng.uniform(0.1, 6.0))
        server.engine.cut = set(self.machine.cut)
        server.engine.taken = dict(self.machine.taken)
        server.absent = set(self.nodes.absent)
        for node in self.checks.missing - server.absent:
            self.checks.server.found(node)
        if self._last is not None:
            self._last.write_late()
            server.live.before = self._last.live
        self._last = server
        server.watch(self.loop.create_task(self._boot(server)))

    async def _boot(self, server: Server) -> None:
        try:
            server.gate()
            await server.live.start()
        except ServerDiedError:
            return
        server.started, server.started_at = True, self.loop.time()
        self.checks.note("the server is up")
        self.checks.server.log_is_short(server.store, self.plan.events_per_state)
        self.checks.server.took_over(server.live)
        ended = {
            keeper.lease
            for keeper in self.machine.keepers.values()
            if keeper.ended_at > server.starts_at
        }
        ended |= {member.lease for member in self.jobs.members()}  # whose keepers have died
        self.checks.server.adopted(server.live, self.home / "leases", ended)
        for member in self.jobs.members():
            if member.valid_until < self.loop.time() + _SOON_S:  # it may have left, or will
                self.checks.touch([member.lease])
        self.network.server = partial(self._renew, server)

    def start_another(self) -> None:
        """Have another server try to start beside the one that is up."""
        if self.server is not None and self.server.up:
            store = self._open_store()
            self.checks.require(store.acquire("another") is None, "two servers hold the store")
            store.close()

    def _open_store(self) -> Any:
        if self.plan.real_store:
            return Store(f"sqlite:///{self.home / 'fairlead.db'}")
        return MemoryStore(self.memory)

    def _renew(
        self, server: Server, lease: int, token: str, told: dict[str, object]
    ) -> tuple[int, dict[str, object]]:
        status, answer = 200, None
        said = Renewal.model_validate(told)
        if lease not in self._tried:  # somebody else's token is good for nothing
            self._tried.add(lease)
            other = self._tokens.lease_token(lease + 1)
            with suppress(AuthError):
                renewed(server.live, self._tokens, self._gates, lease, other, said)
                self.checks.require(False, f"lease {lease} was renewed with another's token")
        try:
            answer = renewed(server.live, self._tokens, self._gates, lease, token, said)
        except FairleadError as error:
            status = 409 if isinstance(error, ProtocolError) else 401
        self.checks.server.renewed(server.live, lease, told, answer)
        return status, answer or {}

    def kill_server(self, down_s: float) -> None:
        """End the server where it stands; another one starts after a while."""
        if self.server is not None:
            self.touch_leaving()
            self._drop_server()
        self.loop.call_later(down_s, self._start_server)

    def _drop_server(self) -> None:
        server, self.server = self.server, None
        assert server is not None
        self.network.server = None
        server.die()

    def _point(self, name: str) -> None:
        """Pass a named point: the server has a gate there, others may die."""
        me = self.machine.me
        if name == "keeper.exit.before" and me is not None:
            there = [one.name for one in me.children if one.alive]
            self.checks.require(not there, f"{me.name} says that all is over, but for {there}")
        if me is None:
            self._gate()
        elif name == "keeper.begins" and me.lease in self.jobs.slow_to_begin:
            self.machine.fibres.sleep(self.jobs.slow_to_begin[me.lease])
        elif name == "keeper.begins" and self.dies_at_begin is not None:
            away_s, self.dies_at_begin = self.dies_at_begin, None
            self._touch_one(me)
            self.loop.call_soon(self.kill_server, away_s)
            self.machine.fibres.sleep(2.0 * away_s)
        elif name == "keeper.begins" and self.network.trouble:
            self.machine.fibres.sleep(self.rng.choice((0.0, 0.0, 0.3)))
        elif name == "job.commit.locked" and me.nodes & self.machine.cut:
            # Its lease may have been given up: the next one's fence comes just now, or must wait.
            self.machine.fibres.sleep(self.rng.uniform(0.0, 3.0))
        elif self.dies_at_point is not None:
            self.dies_at_point -= 1
            if self.dies_at_point < 0:
                self.dies_at_point = None
                self._touch_one(me)
                if me.rank >= 0:
                    self.checks.crashed.add(me.lease)
                self.machine.kill(me)
                self.machine.fibres.pause()

    def _gate(self) -> None:
        if self.server is not None:
            self.server.gate()

    def _asked(self, lease: int) -> bool | None:
        if self.server is None or not self.server.started:
            return None
        if lease in self.server.engine.given_up:  # the engine itself stops what it gave up
            return None
        leases, slot = self.server.live.scheduler.leases, lease & (SLOTS - 1)
        if slot >= len(leases.lease) or leases.lease[slot] != lease:
            return None
        return bool(leases.leaving[slot])

    def _unexpected(self, _: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, ServerDiedError):
            return
        self.checks.require(False, f"unexpected: {context.get('message')}: {error!r}")

    # -- what happenings use --------------------------------------------------------------------

    def client(self, call: "Callable[..., Awaitable[None]]", *given: Any) -> None:
        """Make a call to the server; when none is up, a little later."""
        server = self.server
        if server is None or not server.started:
            self.loop.call_later(0.5, self.client, call, *given)
            return
        server.watch(asyncio.ensure_future(self._call(server, call, *given)))

    async def _call(
        self, server: Server, call: "Callable[..., Awaitable[None]]", *given: Any
    ) -> None:
        try:
            await call(self, server, *given)
        except asyncio.CancelledError:
            if self.quiet:  # no fault is left, so whoever had no answer gets one the next time
                self.loop.call_later(0.5, self.client, call, *given)
            raise

    def touch(self) -> None:
        """Note that all that runs now may end otherwise than it would."""
        self.checks.touch(self.jobs.leases())
        if self.server is not None:
            self.checks.touch(self.server.live.leases)

    def touch_leaving(self) -> None:
        """Note what a server's death means for leases that have just begun or are to leave.

        The next server takes those for lost whose keeper does not live yet, and members that
        leave may be killed before they are told. All others go on until they are over; whether
        they were is seen when a server is up again.
        """
        if self.server is not None:
            runs = {member.lease for member in self.jobs.members()}
            leases = self.server.live.leases.values()
            self.checks.touch(
                one.number for one in leases if one.leaving or one.number not in runs
            )

    def _touch_one(self, process: Process) -> None:
        self.checks.touch([process.lease])
