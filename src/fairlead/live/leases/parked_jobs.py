"""Parked processes: those that are not needed end, the others get their devices back."""

from collections.abc import Collection
from functools import partial
from typing import Any

from fairlead.core import Scheduler
from fairlead.core.queries import JobState, Queries
from fairlead.engines.base import Engine, SupportsParking
from fairlead.live.leases.lifecycle import LeaseLauncher
from fairlead.model.plan import Plan
from fairlead.placement import exchange_devices


class ParkedJobs:
    """Jobs whose processes stay on the engine without a device."""

    def __init__(
        self,
        scheduler: Scheduler[Any],
        queries: Queries,
        engine: Engine,
        launcher: LeaseLauncher,
        drained: Collection[str],
    ) -> None:
        """Follow the parked processes of an engine; ``drained`` are the drained nodes."""
        self._scheduler, self._queries = scheduler, queries
        self._launcher, self._drained = launcher, drained
        self._engine = engine if isinstance(engine, SupportsParking) else None

    def end_unneeded(self) -> None:
        """End the parked processes of jobs that wait for no lease, or cannot have it there.

        The engine forgets jobs that wait for no lease.
        """
        if self._engine is None:
            return
        for job_id, devices in self._engine.parked_jobs().items():
            is_active = self._is_active(job_id)
            if not is_active or any(node in self._drained for node, _ in devices):
                call = partial(self._engine.end_parked, job_id, drained=is_active)
                self._launcher.after_engine_calls(call)
        for job_id in self._engine.remembered_jobs():
            if not self._is_active(job_id):
                self._launcher.after_engine_calls(partial(self._engine.forget_job, job_id))

    def _is_active(self, job_id: str) -> bool:
        """Return whether a job runs, or waits for a lease."""
        job = self._queries.find_job(job_id)
        return job is not None and self._queries.job_state(job) == JobState.ACTIVE

    def prefer_their_devices(self, plan: Plan) -> Plan:
        """Return a plan that is as good, in which parked jobs get the devices they left."""
        parked = {} if self._engine is None else self._engine.parked_jobs()
        if not parked:
            return plan
        cluster = self._scheduler.cluster
        number_of = {address: number for number, address in enumerate(cluster.addresses)}
        left = {
            self._queries.job_number(job): number_of[devices[0]] for job, devices in parked.items()
        }
        return exchange_devices(plan, cluster, left)
