"""Launches, renewals and preemptions of leases, in the order of the core's commands."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from fairlead.core import Scheduler
from fairlead.core.copies import shares_of_copies
from fairlead.core.queries import Queries
from fairlead.engines.base import Ended, Engine, SupportsGrowth, SupportsKill
from fairlead.live.clock import Clock
from fairlead.live.copies.merges import CopyMerges
from fairlead.live.copies.parts import limited_part
from fairlead.live.event_stream import EventStream
from fairlead.live.job_spec import JobSpec
from fairlead.live.leases.open_leases import OpenLease
from fairlead.live.leases.orders import LaunchOrderBuilder
from fairlead.live.leases.registry import LeaseRegistry
from fairlead.model import commands as cmd
from fairlead.model.errors import FairleadError
from fairlead.model.lease import Placement

_MAX_ENGINE_CALLS = 8
"""engine calls after which requests are served"""
_MAX_GROWTH_S = 60.0
"""seconds that a gang may train on until it grows, also without the server"""
_GROWTH_POLL_S = 0.02


class LeaseLauncher:
    """Performs the core's lease commands on the engine.

    ``on_launch_failed`` receives the end of each lease whose processes could not be started.
    """

    def __init__(
        self,
        scheduler: Scheduler[Any],
        queries: Queries,
        engine: Engine,
        orders: LaunchOrderBuilder,
        specs: Mapping[str, JobSpec],
        registry: LeaseRegistry,
        merges: CopyMerges,
        *,
        clock: Clock,
        stream: EventStream,
        on_launch_failed: Callable[[Ended], None],
    ) -> None:
        self._scheduler, self._queries = scheduler, queries
        self._engine, self._orders = engine, orders
        self._growing = engine if isinstance(engine, SupportsGrowth) else None
        self._specs, self._registry, self._merges = specs, registry, merges
        self._clock, self._stream = clock, stream
        self._on_launch_failed = on_launch_failed
        self._outbox: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()

    async def run_engine_calls(self, spawn: Callable[[Awaitable[None]], None]) -> None:
        """Make the engine calls in the order in which they were queued."""
        while True:
            for _ in range(_MAX_ENGINE_CALLS):
                spawn((await self._outbox.get())())
            await asyncio.sleep(0)

    def launch(self, command: cmd.Launch) -> None:
        """Open leases and start their processes."""
        for lease, placement in zip(command.lease.tolist(), command.on, strict=True):
            job_id = self._scheduler.jobs.ids[placement.job]
            opened = OpenLease(lease, job_id, len(placement.devices), command.until)
            opened.copy, opened.max_steps = placement.copy, placement.max_steps
            opened.launched_at = self._clock.now()
            self._registry.add(opened)
            self._outbox.put_nowait(partial(self._launch_on_engine, opened, placement))

    def renew(self, command: cmd.Renew) -> None:
        """Extend leases."""
        leases = self._registry.open
        for lease in command.lease.tolist():
            if lease in leases:
                leases[lease].until = command.until

    def preempt(self, command: cmd.Preempt) -> None:
        """Ask leases to checkpoint and leave."""
        for lease in command.lease.tolist():
            call, opened = partial(self._engine.stop, lease), self._registry.open.get(lease)
            if opened is not None:
                opened.leaving = True
                if self._may_wait(opened):
                    opened.waits_for_growth = True
                    opened.until = max(opened.until, self._clock.now() + _MAX_GROWTH_S)
                    call = partial(self._stop_after_growth, opened)
            self._outbox.put_nowait(call)

    def kill(self, job_id: str) -> None:
        """Kill the processes of a job's leases without their grace, if the engine can."""
        engine = self._engine
        for lease in [lease for lease in self._registry.open.values() if lease.job == job_id]:
            lease.leaving, lease.waits_for_growth = True, False
            call = engine.kill if isinstance(engine, SupportsKill) else engine.stop
            self._outbox.put_nowait(partial(call, lease.number))

    def after_engine_calls(self, call: Callable[[], Awaitable[None]]) -> None:
        """Make a call to the engine after those queued before."""
        self._outbox.put_nowait(call)

    def _may_wait(self, lease: OpenLease) -> bool:
        """Return whether a gang trains on until its new members are ready.

        Its next lease has all of its devices, so no other job waits for them.
        """
        if self._growing is None or not self._growing.is_growing(lease.number):
            return False
        ids, held = self._scheduler.jobs.ids, {*self._queries.devices_of_lease(lease.number)}
        return any(
            ids[placement.job] == lease.job and held <= {*placement.devices}
            for placement in self._scheduler.waiting
        )

    async def _stop_after_growth(self, lease: OpenLease) -> None:
        """Stop a gang once its new members are ready, or it need not wait for them, or is late."""
        until = self._clock.now() + _MAX_GROWTH_S
        while self._may_wait(lease) and self._clock.now() < until:
            await asyncio.sleep(_GROWTH_POLL_S)
        lease.waits_for_growth = False
        await self._engine.stop(lease.number)

    async def _launch_on_engine(self, lease: OpenLease, placement: Placement) -> None:
        if lease.number not in self._registry.open:  # its node was lost meanwhile
            return
        self._stream.log_and_publish("lease.started", job=lease.job, lease=lease.number)
        try:
            spec, cluster = self._specs[lease.job], self._scheduler.cluster
            if spec.may_fork:
                saved = await self._merges.merge(lease.job, to_fork=lease.copy > 0)
                if lease.number not in self._registry.open:
                    return
                if lease.copy:
                    assert spec.steps is not None
                    opened = self._registry.open
                    lease.max_steps = limited_part(lease, spec.steps, saved, opened)
                    placement = placement._replace(max_steps=lease.max_steps)
            shares = shares_of_copies(self._scheduler, placement.job) if placement.copy else None
            order = self._orders.build(lease.number, spec, placement, cluster, shares)
            await self._engine.launch(order)
        except (FairleadError, OSError) as error:
            message = f"it could not be started: {error}"
            self._on_launch_failed(Ended(lease.number, "lost", None, message))
