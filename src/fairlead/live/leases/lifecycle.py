"""Open leases: started, renewed and told to leave, in the order in which the core wants it."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fairlead.core import Scheduler
from fairlead.engines.base import Ended, Engine
from fairlead.live.clock import Clock
from fairlead.live.job_spec import JobSpec
from fairlead.live.leases.open_leases import Load, OpenLease
from fairlead.live.leases.orders import LaunchOrderBuilder
from fairlead.model import commands as cmd
from fairlead.model import events as ev
from fairlead.model.errors import FairleadError
from fairlead.model.lease import Placement

_MAX_ENGINE_CALLS = 8
"""starts and stops between which reads get their turn"""


class LeaseLauncher:
    """Does what the core's commands say of leases, and answers their members."""

    def __init__(
        self,
        scheduler: Scheduler[Any],
        engine: Engine,
        orders: LaunchOrderBuilder,
        specs: Mapping[str, JobSpec],
        clock: Clock,
    ) -> None:
        self._scheduler, self._engine, self._orders = scheduler, engine, orders
        self._specs, self._clock = specs, clock
        self.open: dict[int, OpenLease] = {}
        """lease → what its members are told"""
        self.on_launched: Callable[[OpenLease], None] = lambda _: None
        """told of each lease when its processes are about to be started"""
        self.on_launch_failed: Callable[[Ended], None] = lambda _: None
        """told of each lease whose processes could not be started"""
        self._load = Load()
        self._outbox: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()

    async def run_engine_calls(self, spawn: Callable[[Awaitable[None]], None]) -> None:
        """Have the engine start and stop leases in the order in which that was asked for."""
        while True:
            for _ in range(_MAX_ENGINE_CALLS):
                spawn((await self._outbox.get())())
            await asyncio.sleep(0)

    def recover_leases(self, slots: Sequence[int]) -> None:
        """Open the leases that an earlier server has left."""
        leases, until = self._scheduler.leases, self._scheduler.round_end_at
        for slot in slots:
            self._add(
                OpenLease(
                    int(leases.lease[slot]),
                    self._scheduler.jobs.ids[int(leases.job[slot])],
                    int((leases.holder == slot).any(axis=0).sum()),  # an elastic gang may differ
                    math.inf if until is None else until,
                    bool(leases.leaving[slot]),
                )
            )

    def close(self, lease: int) -> OpenLease | None:
        """Tell its members from now on that a lease is over; None if it was so before."""
        closed = self.open.pop(lease, None)
        if closed is not None:
            self._load.members -= closed.ranks
        return closed

    # -- what the core wants done ---------------------------------------------------------------

    def launch(self, command: cmd.Launch) -> None:
        """Open leases and have their processes started."""
        for lease, placement in zip(command.lease.tolist(), command.on, strict=True):
            job_id = self._scheduler.jobs.ids[placement.job]
            opened = OpenLease(lease, job_id, len(placement.devices), command.until)
            opened.launched_at = self._clock.now()
            self._add(opened)
            self._outbox.put_nowait(partial(self._launch_on_engine, opened, placement))

    def renew(self, command: cmd.Renew) -> None:
        """Let leases go on for longer."""
        for lease in command.lease.tolist():
            if lease in self.open:
                self.open[lease].until = command.until

    def suspend(self, command: cmd.Preempt) -> None:
        """Have leases leave."""
        for lease in command.lease.tolist():
            if lease in self.open:
                self.open[lease].leaving = True
            self._outbox.put_nowait(partial(self._engine.stop, lease))

    def afterwards(self, act: Callable[[], Awaitable[None]]) -> None:
        """Have the engine do this after it was told of all that was asked for before."""
        self._outbox.put_nowait(act)

    def _add(self, lease: OpenLease) -> None:
        self.open[lease.number] = lease
        self._load.members += lease.ranks

    async def _launch_on_engine(self, lease: OpenLease, placement: Placement) -> None:
        if lease.number not in self.open:  # its node was lost meanwhile
            return
        self.on_launched(lease)
        try:
            spec, cluster = self._specs[lease.job], self._scheduler.cluster
            order = self._orders.write(lease.number, spec, placement, cluster)
            await self._engine.launch(order)
        except (FairleadError, OSError) as error:
            why = f"it could not be started: {error}"
            self.on_launch_failed(Ended(lease.number, "lost", None, why))

    # -- what members tell ----------------------------------------------------------------------

    def answer(self, lease: int, told: Mapping[str, object]) -> dict[str, object] | None:
        """Answer a member's renewal; None when the lease is over."""
        found = self.open.get(lease)
        if found is None:
            return None
        self._load.leaving = self._scheduler.leases.leaving_count
        return found.renew(self._clock.now(), told, self._load)

    def progressed(self, lease: int, steps: float) -> None:
        """Take in how far a job without the library says it is."""
        if lease in self.open:
            self.open[lease].steps = max(self.open[lease].steps, steps)

    def progress(self, at: float) -> list[ev.Event]:
        """Return what jobs have told of their steps, as one event."""
        heard = [one for one in self.open.values() if one.steps > 0]
        if not heard:
            return []
        lease = np.array([one.number for one in heard], dtype=np.int64)
        return [ev.Progress(at, lease, np.array([one.steps for one in heard]))]
