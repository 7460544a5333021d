"""Starts, kills and restarts the simulated server, and answers renewals for it."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from tests.faults.bad_config import check_refusals
from tests.faults.context import FaultContext
from tests.faults.record import CHECKPOINT_S
from tests.faults.scenario import SPEEDS
from tests.faults.system.server import Server, ServerDiedError
from tests.faults.system.store import MemoryStore, StoredData

from fairlead.live.config import LiveConfig
from fairlead.live.job_spec import JobSpec
from fairlead.live.scheduling_config import SchedulingConfig
from fairlead.model.errors import FairleadError, ProtocolError
from fairlead.model.speeds.key import Consolidation
from fairlead.server.access.rate_limits import RateLimiters, RateLimits
from fairlead.server.access.tokens import AuthError, Tokens
from fairlead.server.api.renewals import answer_renewal
from fairlead.server.api.schemas import Renewal
from fairlead.server.context import ServerContext, ServerInfo
from fairlead.store import Store

_RECONNECT_S = 1.5
"""seconds within which a member finds a restarted server"""


class ServerLifecycle:
    """Runs one server after another on the same data."""

    def __init__(self, world: FaultContext) -> None:
        plan = world.plan
        self._world, self._plan, self._rng = world, plan, plan.rng
        self._loop, self._machine, self._checks = world.loop, world.machine, world.checks
        self.server: Server | None = None
        """the running server, None while it is down"""
        self._previous: Server | None = None
        self._stored = StoredData()
        self._tokens = Tokens({}, b"a secret")
        self._wrong_token_tried: set[int] = set()
        """leases for which a renewal with a wrong token was tried"""
        self._rate_limiters = RateLimiters(RateLimits(), self._loop.time)
        self._config = LiveConfig(
            cluster=plan.cluster,
            scheduling=plan.configs[0],
            load_scheduling=self._load_config,
            data=world.home,
            environment=self._environment,
        )

    def _load_config(self, text: str) -> SchedulingConfig:
        plan = self._plan
        if plan.live_config is not None and plan.live_config.text == text:
            return plan.live_config
        return next(config for config in plan.configs if config.text == text)

    def _environment(
        self,
        lease: int,
        spec: JobSpec,
        accelerators: tuple[str, ...],
        placement: Consolidation,
    ) -> dict[str, str]:
        speed = SPEEDS.speed(spec.workload, accelerators, placement=placement)
        return {
            "FAIRLEAD_URL": "http://simulated",
            "FAIRLEAD_JOB_TOKEN": self._tokens.lease_token(lease),
            "FAIRLEAD_LEASE_S": f"{2 * self._plan.round_s:g}",
            "FAIRLEAD_EMULATED_STEPS_PER_S": f"{speed:.17g}",
            "FAIRLEAD_CHECKPOINT_S": f"{CHECKPOINT_S:g}",
        }

    def start(self) -> None:
        """Start a server unless one is running."""
        if self.server is not None:
            return
        world, checks = self._world, self._checks
        if world.refuse_next_config:
            world.refuse_next_config = False
            check_refusals(self._open_store, self._config, checks)
        store = self._open_store()
        checks.note("a server starts")
        self._machine.servers += 1
        trouble = 0.0 if world.quiet else self._plan.trouble
        configs = self._plan.configs
        scheduling = configs[(self._machine.servers - 1) % len(configs)]
        self._config = replace(
            self._config,
            scheduling=scheduling,
            start_settings=scheduling.name,
            cluster=world.nodes.inventory(),
        )
        server = Server(store, self._config, checks, self._rng, trouble=trouble)
        self.server = server
        server.starts_at = self._loop.time()
        server.number = self._machine.servers
        server.on_death = lambda _: self.kill(self._rng.uniform(0.1, 6.0))
        server.engine.unreachable = set(self._machine.unreachable)
        server.engine.taken = dict(self._machine.taken)
        server.absent = set(world.nodes.absent)
        for node in checks.missing - server.absent:
            checks.server.found(node)
        if self._previous is not None:
            self._previous.write_late()
            server.live.before = self._previous.live
        self._previous = server
        server.watch(self._loop.create_task(self._boot(server)))

    async def _boot(self, server: Server) -> None:
        world, checks = self._world, self._checks
        try:
            server.gate()
            await server.live.start()
        except ServerDiedError:
            return
        server.started, server.started_at = True, self._loop.time()
        checks.note("the server is up")
        checks.server.log_is_short(server.store, self._plan.events_per_state)
        checks.server.took_over(server.live)
        checks.server.kept_policy(server.live)
        ended = {
            keeper.lease
            for keeper in self._machine.keepers.values()
            if keeper.ended_at > server.starts_at
        }
        ended |= {member.lease for member in world.jobs.members()}  # whose keepers have died
        checks.server.adopted(server.live, world.home / "leases", ended)
        for member in world.jobs.members():
            if member.valid_until < self._loop.time() + _RECONNECT_S:  # it has left or soon will
                checks.touch([member.lease])
        world.network.server = partial(self._renew, server)

    def start_another(self) -> None:
        """Try to start another server beside the running one."""
        if self.server is not None and self.server.up:
            store = self._open_store()
            self._checks.require(store.acquire("another") is None, "two servers hold the store")
            store.close()

    def _open_store(self) -> Any:
        if self._plan.real_store:
            return Store(f"sqlite:///{self._world.home / 'fairlead.db'}")
        return MemoryStore(self._stored)

    def _renew(
        self, server: Server, lease: int, token: str, body: dict[str, object]
    ) -> tuple[int, dict[str, object]]:
        status, answer = 200, None
        context = ServerContext(server.live, self._tokens, self._rate_limiters, ServerInfo())
        renewal = Renewal.model_validate(body)
        if lease not in self._wrong_token_tried:  # another lease's token must not renew this one
            self._wrong_token_tried.add(lease)
            other = self._tokens.lease_token(lease + 1)
            with suppress(AuthError):
                answer_renewal(context, lease, other, renewal)
                self._checks.require(False, f"lease {lease} was renewed with another's token")
        try:
            answer = {**answer_renewal(context, lease, token, renewal)}
        except FairleadError as error:
            status = 409 if isinstance(error, ProtocolError) else 401
        self._checks.server.renewed(server.live, lease, body, answer)
        return status, answer or {}

    def kill(self, down_s: float) -> None:
        """Kill the server; another one starts after a delay."""
        if self.server is not None:
            self._world.touch_leaving()
            self.drop()
        self._loop.call_later(down_s, self.start)

    def drop(self) -> None:
        """Kill the server without a successor."""
        server, self.server = self.server, None
        assert server is not None
        self._world.network.server = None
        server.die()
