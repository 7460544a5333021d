"""Hand-over and growth: processes of planned leases start before the plan applies."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from fairlead.core import Scheduler
from fairlead.core.queries import JobState, Queries
from fairlead.engines.base import DeviceReading, Engine, SupportsHandOver, SupportsParking
from fairlead.live.job_spec import JobSpec
from fairlead.live.leases.lifecycle import LeaseLauncher
from fairlead.live.leases.orders import LaunchOrderBuilder
from fairlead.live.leases.registry import LeaseRegistry
from fairlead.live.nodes.device_health import Device
from fairlead.live.nodes.job_memory import JobMemory
from fairlead.model.errors import FairleadError
from fairlead.model.lease import Placement
from fairlead.model.plan import Plan


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
        self._memory = None if readings is None else JobMemory(scheduler, queries, readings)

    def prepare(self, plan: Plan) -> None:
        """Start the processes of a plan that applies at the end of the round; end all others."""
        engine, scheduler = self._engine, self._scheduler
        if self._memory is not None:
            self._memory.note(plan.stop.tolist())
        if engine is None or not engine.prepares or scheduler.pending is not plan:
            return
        waiting = {self._queries.job_id(job) for job in scheduler.waiting.job.tolist()}
        orders = []
        for job_id, placement in self._moves(plan).items():
            with suppress(FairleadError, OSError):  # its launch will show the problem
                spec = self._specs[job_id]
                orders.append(self._orders.build(0, spec, placement, scheduler.cluster))
        needed = waiting.union(order.job for order in orders)
        for job_id in engine.prepared_jobs():
            if job_id not in needed:
                self._launcher.after_engine_calls(partial(engine.end_prepared, job_id))
        for order in orders:
            self._launcher.after_engine_calls(partial(engine.prepare, order))

    def end_unneeded(self) -> None:
        """End the prepared processes of jobs that wait for no lease, or cannot have it there."""
        if self._engine is None:
            return
        for job_id, (node, _) in self._engine.prepared_jobs().items():
            state = self._queries.job_state(self._queries.job_number(job_id))
            if state != JobState.ACTIVE or node in self._drained:
                self._launcher.after_engine_calls(partial(self._engine.end_prepared, job_id))

    def _moves(self, plan: Plan) -> dict[str, Placement]:
        """Return job → placement for which processes can be prepared.

        Only jobs alone on one device and gangs that grow, and only those that use the library:
        others would train without a lease.
        """
        uses = Counter(plan.start.device.tolist())
        parked = {} if self._parking is None else self._parking.parked_jobs()
        moves = {}
        for placement in plan.start:
            job_id = self._queries.job_id(placement.job)
            addresses = [self._scheduler.cluster.addresses[one] for one in placement.devices]
            address_of = dict(zip(placement.devices, addresses, strict=True))
            new = self._new_devices(placement)
            if (
                new
                and all(uses[device] == 1 for device in placement.devices)
                and not placement.copy
                and job_id in self._registry.renewing_jobs
                and parked.get(job_id) != tuple(addresses)
                and all(self._fits(placement.job, one, address_of[one]) for one in new)
            ):
                moves[job_id] = placement
        return moves

    def _new_devices(self, placement: Placement) -> Sequence[int]:
        """Return the devices for which processes can be prepared: one, or those of a growth."""
        lease = self._queries.job_status(placement.job).lease
        held = set() if lease is None else {*self._queries.devices_of_lease(lease)}
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
