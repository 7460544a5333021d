"""Hand-over and growth: processes of planned leases start before the plan applies."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from fairlead.core import Scheduler
from fairlead.core.queries import JobState, Queries
from fairlead.engines.base import (
    DeviceReading,
    Engine,
    LaunchOrder,
    SupportsHandOver,
    SupportsParking,
)
from fairlead.live.job_spec import JobSpec
from fairlead.live.leases.lifecycle import LeaseLauncher
from fairlead.live.leases.open_leases import OpenLease
from fairlead.live.leases.orders import LaunchOrderBuilder
from fairlead.live.leases.registry import LeaseRegistry
from fairlead.live.nodes.device_health import Device
from fairlead.live.nodes.job_memory import JobMemory
from fairlead.model.errors import FairleadError
from fairlead.model.lease import Placement
from fairlead.model.plan import Plan

_LAST_LEASE_AHEAD_S = 30.0
"""seconds before the end of a job's copies in which the process of its last lease starts"""


class HandOvers:
    """Prepares the processes of jobs that the next plan starts elsewhere."""

    def __init__(
        self,
        scheduler: Scheduler[Any],
        queries: Queries,
        engine: Engine,
        launcher: LeaseLauncher,
        orders: LaunchOrderBuilder,
        specs: Mapping[str, JobSpec],
        registry: LeaseRegistry,
        *,
        drained: Collection[str],
        readings: Mapping[Device, DeviceReading] | None,
    ) -> None:
        """Prepare processes on an engine that can.

        ``drained`` are the drained nodes, ``readings`` those of all devices; None: the devices
        are emulated, and have no memory.
        """
        self._scheduler, self._queries = scheduler, queries
        self._engine = engine if isinstance(engine, SupportsHandOver) else None
        self._parking = engine if isinstance(engine, SupportsParking) else None
        self._launcher, self._orders, self._specs = launcher, orders, specs
        self._registry, self._drained, self._readings = registry, drained, readings
        self._asked_for_last: dict[str, int] = {}
        """job → one of its copies, for which the process of its last lease was asked for"""
        self._memory = None if readings is None else JobMemory(scheduler, queries, readings)

    def prepare(self, plan: Plan) -> None:
        """Start the processes of a plan that applies at the end of the round; end all others."""
        engine, scheduler = self._engine, self._scheduler
        if self._memory is not None:
            self._memory.note(plan.stop.tolist())
        if engine is None or not engine.prepares or scheduler.pending is not plan:
            return
        waiting = {self._queries.job_id(job) for job in scheduler.waiting.job.tolist()}
        orders: dict[str, list[LaunchOrder]] = {}
        for job_id, placement in self._moves(plan):
            with suppress(FairleadError, OSError):  # its launch will show the problem
                order = self._orders.build(0, self._specs[job_id], placement, scheduler.cluster)
                orders.setdefault(job_id, []).append(order)
        for job_id in engine.prepared_jobs():
            if job_id not in waiting and job_id not in orders:
                self._launcher.after_engine_calls(partial(engine.end_prepared, job_id))
        for of_job in orders.values():
            self._launcher.after_engine_calls(partial(engine.prepare, *of_job))

    def prepare_last_lease(self, copy: int) -> None:
        """Start the process of a job's last lease once its copies will be done soon.

        ``copy`` is the lease of one of them. The last lease is most likely where the fastest copy
        is, and starts in mid-round, so that no plan announces it.
        """
        lease, engine = self._registry.open.get(copy), self._engine
        if lease is None or not lease.copy or engine is None or not engine.prepares:
            return
        copies = [one for one in self._registry.open.values() if one.job == lease.job]
        was_asked = any(one.number == self._asked_for_last.get(lease.job) for one in copies)
        if was_asked or not all(map(_ends_soon, copies)):
            return
        self._asked_for_last = {lease.job: copy} | {
            job: number
            for job, number in self._asked_for_last.items()
            if job != lease.job and number in self._registry.open
        }
        if lease.job in engine.prepared_jobs():
            return
        fastest = max(copies, key=lambda one: one.steps_per_s)
        job = self._queries.job_number(lease.job)
        placement = Placement(job, 0, self._queries.devices_of_lease(fastest.number))
        cluster = self._scheduler.cluster
        addresses = [cluster.addresses[device] for device in placement.devices]
        if all(map(partial(self._fits, job), placement.devices, addresses)):
            with suppress(FairleadError, OSError):  # its launch will show the problem
                order = self._orders.build(0, self._specs[lease.job], placement, cluster)
                self._launcher.after_engine_calls(partial(engine.prepare, order))

    def end_unneeded(self) -> None:
        """End the prepared processes of jobs that wait for no lease, or cannot have it there."""
        if self._engine is None:
            return
        for job_id, devices in self._engine.prepared_jobs().items():
            state = self._queries.job_state(self._queries.job_number(job_id))
            if state != JobState.ACTIVE or any(node in self._drained for node, _ in devices):
                self._launcher.after_engine_calls(partial(self._engine.end_prepared, job_id))

    def _moves(self, plan: Plan) -> list[tuple[str, Placement]]:
        """Return the jobs and placements for which processes can be prepared.

        Only jobs and copies alone on one device and gangs that grow, and only those that use the
        library: others would train without a lease. A process learns only with its lease whether
        it is a copy.
        """
        uses = Counter(plan.start.device.tolist())
        parked = {} if self._parking is None else self._parking.parked_jobs()
        moves = []
        for placement in plan.start:
            job_id = self._queries.job_id(placement.job)
            addresses = [self._scheduler.cluster.addresses[one] for one in placement.devices]
            address_of = dict(zip(placement.devices, addresses, strict=True))
            new = self._new_devices(placement)
            if (
                new
                and all(uses[device] == 1 for device in placement.devices)
                and job_id in self._registry.renewing_jobs
                and parked.get(job_id) != tuple(addresses)
                and all(self._fits(placement.job, one, address_of[one]) for one in new)
            ):
                moves.append((job_id, placement._replace(copy=0)))
        return moves

    def _new_devices(self, placement: Placement) -> Sequence[int]:
        """Return the devices for which processes can be prepared: one, or those of a growth."""
        lease = self._queries.job_status(placement.job).lease
        forks = self._specs[self._queries.job_id(placement.job)].may_fork
        # The next processes of copies, also on the same devices, read the average.
        held = set() if lease is None or forks else {*self._queries.devices_of_lease(lease)}
        grows = held and held < {*placement.devices}
        if len(placement.devices) > 1 and not grows:
            return ()
        return [device for device in placement.devices if device not in held]

    def _fits(self, job: int, device: int, address: Device) -> bool:
        """Return whether a job's memory fits on a device beside the memory used there now."""
        if self._readings is None or self._memory is None:
            return True
        if self._scheduler.leases.free_devices[device]:
            return True
        reading, needed_gib = self._readings.get(address), self._memory.needed_gib(job)
        if reading is None or reading.memory_gib is None or reading.memory_used_gib is None:
            return False
        return needed_gib is not None and (
            needed_gib <= reading.memory_gib - reading.memory_used_gib
        )


def _ends_soon(copy: OpenLease) -> bool:
    """Return whether a copy, at its speed, will have made its part soon."""
    left = copy.max_steps - copy.steps
    return not copy.leaving and left <= copy.steps_per_s * _LAST_LEASE_AHEAD_S
