"""Supervision of successors: starts them before their leases, hands them their first one."""

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fairlead import failpoints
from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.environment import inherited
from fairlead.engines.keeper.parking.parked import (
    SERVER_VARIABLE,
    ParkedKeeper,
    may_wait,
    used_gib,
    without_lease,
)
from fairlead.engines.keeper.parking.supervisor import ParkingSupervisor
from fairlead.engines.keeper.start import start_keeper
from fairlead.job.copies.part import is_copy

_POLL_S = 0.01
_MAX_WAIT_S = 60.0
"""seconds for which a lease waits for its successor, which has begun to start before"""
_FIRST_NUMBER = 1 << 52
"""successors are numbered from here on, above all leases, by (server, order of their starts)"""
_PER_SERVER = 1 << 24
_Place = tuple[str, tuple[tuple[str, int], ...]]
MAX_FAILURES = 3
"""successors of a job that fail in a row until no more are started"""


@dataclass(slots=True, eq=False)
class Successor(ParkedKeeper):
    """A keeper whose process has had no lease, as the supervisor knows it."""

    is_ready: bool = False
    """its process waits for a lease"""
    has_ended: bool = False


class HandOverSupervisor(ParkingSupervisor):
    """Starts processes of later leases, within the budget of parked processes."""

    def __init__(
        self, data: Path, inherits: Collection[str] = (), *, offload_gib: float = 0.0
    ) -> None:
        """Keep parked processes and successors that use at most ``offload_gib`` together."""
        super().__init__(data, inherits, offload_gib=offload_gib)
        self.prepares = offload_gib > 0
        self._successors: dict[_Place, Successor] = {}
        """job and devices → the process that waits for a lease there, oldest first"""
        self._failures: Counter[str] = Counter()
        """job → successors in a row that ended, or did not attach in time"""
        self._numbers = itertools.count(_FIRST_NUMBER + os.getpid() * _PER_SERVER)

    def remembered_jobs(self) -> Collection[str]:
        """Return the jobs of which something is remembered for their next leases."""
        return {*super().remembered_jobs(), *self._failures}

    async def forget_job(self, job: str) -> None:
        """Forget a job that has ended, or was suspended."""
        self._failures.pop(job, None)
        await super().forget_job(job)

    def prepared_jobs(self) -> Mapping[str, tuple[tuple[str, int], ...]]:
        """Return job → (node, number on it) of the devices for which processes are prepared."""
        devices: dict[str, tuple[tuple[str, int], ...]] = {}
        for job, own in self._successors:
            devices[job] = devices.get(job, ()) + own
        return devices

    async def prepare(self, *orders: LaunchOrder) -> None:
        """Start the processes of a job's next leases, unless there are, or they cannot wait."""
        for successor in self._successors_of(orders[0].job):
            if not any(successor.can_run(order) for order in orders):
                self._end_successor(successor)
        for order in orders:
            self._prepare_one(order)

    def _prepare_one(self, order: LaunchOrder) -> None:
        order = replace(without_lease(order), offload_gib=self._offload_gib)
        waiting = self._successors.get(_place(order)) or self._parked.get(order.job)
        if waiting is not None and waiting.can_run(order):
            return
        # Secrets are sent to open leases only.
        usable = may_wait(order) and len(order.devices) == 1 and not order.secrets
        if not (self.prepares and usable) or self._failures[order.job] >= MAX_FAILURES:
            return
        order = replace(order, lease=next(self._numbers))
        try:
            self._start_successor(order)
        except OSError:  # no memory, or no descriptor left: the job starts without
            lease_dir.remove(self._directory(order.lease))

    async def end_prepared(self, job: str) -> None:
        """End the processes that are prepared for a job, if there are any."""
        for successor in self._successors_of(job):
            self._end_successor(successor)

    def _successors_of(self, job: str) -> list[Successor]:
        return [one for one in self._successors.values() if one.order.job == job]

    def _end_successor(self, successor: Successor) -> None:
        self._successors.pop(_place(successor.order), None)
        if not successor.has_ended:
            self._end(successor)

    async def close(self) -> None:
        """End successors and parked processes; those of open leases keep running."""
        for successor in self._successors.values():
            self._end(successor)
            self._unfollow(successor)
        self._successors.clear()
        await super().close()

    def _start_successor(self, order: LaunchOrder) -> None:
        home = self._directory(order.lease)
        lease_dir.write_order(home, order)
        failpoints.point("server.prepare.ordered")
        environment = inherited(os.environ, self._inherits)
        environment[SERVER_VARIABLE] = str(os.getpid())
        pid = start_keeper(home, "fairlead.engines.keeper.hand_over.keeper", environment)
        failpoints.point("server.prepare.spawned")
        successor = Successor(order, home, pid, os.pidfd_open(pid), 0.0)
        self._successors[_place(order)] = successor
        asyncio.get_running_loop().add_reader(successor.pidfd, self._keeper_ended, successor)
        self._look_for_readiness(successor)

    def _look_for_readiness(self, successor: Successor) -> None:
        """Note that a successor waits for its lease; poll until then."""
        if successor.has_ended:
            return
        if not lease_dir.was_parked(successor.home):
            asyncio.get_running_loop().call_later(_POLL_S, self._look_for_readiness, successor)
            return
        failpoints.point("server.prepare.seen")
        successor.is_ready = True
        self._failures.pop(successor.order.job, None)
        successor.gib = used_gib(successor.home, successor.order.offload_gib)
        self._keep_within_budget()

    async def _take_process(self, order: LaunchOrder) -> ParkedKeeper | None:
        parked = await super()._take_process(order)
        successor = self._successors.pop(_place(order), None)
        if not is_copy(order.environment):  # others wait for the leases of other copies
            await self.end_prepared(order.job)
        if successor is None:
            return parked
        if parked is None and successor.can_run(order) and await self._wait_for(successor):
            return successor
        if not successor.has_ended:
            self._end(successor)
        return parked

    async def _wait_for(self, successor: Successor) -> bool:
        """Wait until a successor can take its lease; return whether it can."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _MAX_WAIT_S
        while not successor.is_ready and not successor.has_ended and loop.time() < until:
            await asyncio.sleep(_POLL_S)
        if not successor.is_ready:
            self._failures[successor.order.job] += 1
        return successor.is_ready and not successor.has_ended and successor.lives()

    def _keeper_ended(self, parked: ParkedKeeper) -> None:
        if isinstance(parked, Successor):
            parked.has_ended = True
            if self._successors.get(_place(parked.order)) is parked:  # nobody has ended it
                del self._successors[_place(parked.order)]
                if not parked.is_ready:
                    self._failures[parked.order.job] += 1
        super()._keeper_ended(parked)

    def _keep_within_budget(self) -> None:
        """End successors first: they hold no state of a job."""
        while self._successors and self._used_gib() > self._offload_gib:
            self._end(self._successors.pop(next(iter(self._successors))))
        super()._keep_within_budget()

    def _used_gib(self) -> float:
        waiting = (*self._parked.values(), *self._successors.values())
        return sum(one.gib for one in waiting)


def _place(order: LaunchOrder) -> _Place:
    return order.job, order.devices
