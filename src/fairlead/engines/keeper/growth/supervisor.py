"""Supervision of gangs that grow: asks their keepers to start new members before the lease."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fairlead import failpoints
from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper.growth import files
from fairlead.engines.keeper.hand_over.supervisor import MAX_FAILURES, HandOverSupervisor
from fairlead.engines.keeper.parking.parked import ParkedKeeper, grown, without_lease

_POLL_S = 0.02


@dataclass(slots=True, eq=False)
class Growth:
    """New members of a gang, as the supervisor knows them."""

    lease: int
    """lease of the gang that grows"""
    order: LaunchOrder
    """order with the new members, whose lease is the number of the request"""
    home: Path
    """directory of the gang's keeper"""
    devices: tuple[tuple[str, int], ...]
    """devices of the new members"""
    is_ready: bool = False
    gib: float = 0.0


class GrowthSupervisor(HandOverSupervisor):
    """Prepares gangs for larger leases, within the budget of parked processes."""

    def __init__(
        self, data: Path, inherits: Collection[str] = (), *, offload_gib: float = 0.0
    ) -> None:
        """Keep processes without a lease that use at most ``offload_gib`` together."""
        super().__init__(data, inherits, offload_gib=offload_gib)
        self._growths: dict[str, Growth] = {}
        """job → the new members of its gang, oldest first"""

    def prepared_jobs(self) -> Mapping[str, tuple[tuple[str, int], ...]]:
        """Return job → (node, number on it) of the devices for which processes are prepared."""
        growing = {job: growth.devices for job, growth in self._growths.items()}
        return {**super().prepared_jobs(), **growing}

    async def prepare(self, *orders: LaunchOrder) -> None:
        """Start the processes of a job's next leases, or the new members of its gang."""
        order, *copies = orders
        wanted = replace(without_lease(order), offload_gib=self._offload_gib)
        open_leases = ((n, one) for n, one in self._orders.items() if n not in self._leaving)
        lease, running = next((one for one in open_leases if one[1].job == order.job), (0, None))
        larger = None if running is None else grown(running, wanted)
        if running is None or larger is None or copies:
            self._end_growth(order.job)
            await super().prepare(*orders)
            return
        growth = self._growths.get(order.job)
        if growth is not None and (growth.lease, growth.order.devices) == (lease, larger.devices):
            return
        await self.end_prepared(order.job)
        if self._failures[order.job] < MAX_FAILURES:
            self._request_growth(lease, running, replace(larger, lease=next(self._numbers)))

    async def end_prepared(self, job: str) -> None:
        """End the processes that are prepared for a job, if there are any."""
        self._end_growth(job)
        await super().end_prepared(job)

    def _end_growth(self, job: str) -> None:
        growth = self._growths.pop(job, None)
        if growth is not None:
            files.request_growth(growth.home, None)

    def is_growing(self, lease: int) -> bool:
        """Return whether new members of a lease's gang are about to be ready."""
        return any(one.lease == lease and not one.is_ready for one in self._growths.values())

    async def close(self) -> None:
        """End all processes without a lease; those of open leases keep running."""
        for growth in self._growths.values():
            files.request_growth(growth.home, None)
        self._growths.clear()
        await super().close()

    def _request_growth(self, lease: int, running: LaunchOrder, larger: LaunchOrder) -> None:
        home = self._directory(lease if running.resumes is None else running.resumes)
        growth = Growth(lease, larger, home, larger.devices[len(running.devices) :])
        self._growths[larger.job] = growth
        files.request_growth(home, larger)
        failpoints.point("server.growth.requested")
        self._look_for_newcomers(growth)

    def _look_for_newcomers(self, growth: Growth) -> None:
        """Note that new members are ready, or have ended; poll until they have a lease."""
        job = growth.order.job
        if self._growths.get(job) is not growth:
            return
        state, gib = files.read_state(growth.home, growth.order.lease)
        if state == files.READY and not growth.is_ready:
            growth.is_ready, growth.gib = True, min(gib, growth.order.offload_gib)
            self._failures.pop(job, None)
            self._keep_within_budget()
        elif state in (files.FAILED, files.DROPPED):
            del self._growths[job]
            if state == files.FAILED and not growth.is_ready:
                self._failures[job] += 1
            return
        asyncio.get_running_loop().call_later(_POLL_S, self._look_for_newcomers, growth)

    async def _take_process(self, order: LaunchOrder) -> ParkedKeeper | None:
        self._growths.pop(order.job, None)  # its keeper admits them, or ends them
        return await super()._take_process(order)

    def _report_end(self, lease: int) -> None:
        for job in [job for job, one in self._growths.items() if one.lease == lease]:
            del self._growths[job]  # they have ended with their keeper
        super()._report_end(lease)

    def _keep_within_budget(self) -> None:
        """End new members first: a gang can grow without them."""
        while self._growths and self._used_gib() > self._offload_gib:
            growth = self._growths.pop(next(iter(self._growths)))
            files.request_growth(growth.home, None)
        super()._keep_within_budget()

    def _used_gib(self) -> float:
        return super()._used_gib() + sum(one.gib for one in self._growths.values())
