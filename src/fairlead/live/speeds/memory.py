"""Device memory: a job that has run out of it is not sent to such devices again."""

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from fairlead.core.queries import Queries
from fairlead.engines.base import Ended
from fairlead.live.executors import BackgroundTasks, Workers
from fairlead.live.history.exits import log_tail
from fairlead.live.inputs.inbox import Inbox
from fairlead.live.leases.open_leases import OpenLease
from fairlead.model import events as ev
from fairlead.model.speeds.key import SpeedKey

log = structlog.get_logger("fairlead.live")

_OUT_OF_MEMORY = re.compile(
    r"(CUDA|HIP|XPU) out of memory|OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY"
    r"|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED: Out of memory"
)
"""last words of programs of PyTorch, JAX, TensorFlow and CUDA that ran out of device memory"""
_MAX_LINES, _MAX_BYTES = 60, 16384
"""end of a log that is searched: launchers such as torchrun print a report after the error"""
_MAX_LOGS = 64
"""members whose logs are searched"""


def too_large(queries: Queries, leases: Collection[OpenLease], at: float) -> list[ev.Event]:
    """Return the accelerators on which running jobs do not fit, by the memory that they report.

    A job that needs more than all the memory of an untried accelerator has a measured speed of 0
    there, like one that has failed. Speeds of the table and measured ones stay.
    """
    most_gib = max((lease.metrics.get("memory_gib") or 0.0 for lease in leases), default=0.0)
    if not queries.smaller_accelerators(most_gib):
        return []
    needs = {
        lease.number: (SpeedKey(*key[:3]), lease.metrics.get("memory_gib") or 0.0)
        for lease in leases
        if (key := queries.speed_key(lease.number)) is not None
    }
    tried = {key for key, _ in needs.values()}
    unfit: dict[SpeedKey, ev.Event] = {}
    for number, (key, needed_gib) in needs.items():
        shared = queries.shared_devices(number)
        if needed_gib <= 0.0 or shared is None:
            continue
        job = queries.job(queries.job_number(shared.job_id))
        for name in queries.smaller_accelerators(needed_gib):
            there = SpeedKey(key.workload, job.gang_on(name), name)
            if there not in tried and queries.believed_speed(there).source == "assumed":
                unfit[there] = ev.SpeedMeasured(at, *there[:3], 0.0)
    return list(unfit.values())


class DeviceMemory:
    """Learns from failed leases on which accelerators a workload does not fit.

    The lesson is a measured speed of 0, for the tenant's jobs of the same workload and gang;
    beside a partner, for the pair alone. A job that could run nowhere else keeps its accelerator,
    and fails once its retries are used.
    """

    def __init__(
        self,
        queries: Queries,
        log_dir: Callable[[str], Path],
        workers: Workers,
        inbox: Inbox,
        tasks: BackgroundTasks,
    ) -> None:
        self._queries, self._log_dir = queries, log_dir
        self._workers, self._inbox, self._tasks = workers, inbox, tasks

    def lease_ended(self, ended: Ended) -> None:
        """Read the log of a failed lease in the background; call it while the lease is open."""
        shared = self._queries.shared_devices(ended.lease)
        key = self._queries.speed_key(ended.lease)
        if ended.ending == "failed" and shared is not None and key is not None:
            self._tasks.spawn(self._learn(ended, shared.job_id, key))

    async def _learn(self, ended: Ended, job_id: str, key: SpeedKey) -> None:
        directory = self._log_dir(job_id)
        if not await self._workers.write(_ran_out, directory, ended.lease, ended.exit_codes):
            return

        def lesson(at: float) -> Sequence[ev.Event]:
            number = self._queries.job_number(job_id)
            usable = [speed.key.accelerator for speed in self._queries.job_speeds(number)]
            if key.partner is None and (key.accelerator not in usable or len(usable) < 2):
                return []
            packed = key.partner is not None
            log.info("speed.unfit", job=job_id, accelerator=key.accelerator, packed=packed)
            place = key.workload, key.gang, key.accelerator
            return [ev.SpeedMeasured(at, *place, 0.0, key.partner)]

        self._inbox.post(lesson)


def _ran_out(directory: Path, lease: int, exit_codes: Sequence[int]) -> bool:
    """Return whether any failed member has printed last that its device is out of memory.

    The others are killed then, so the failed member with the least rank may be none that ran out.
    """
    failed = [rank for rank, code in enumerate(exit_codes) if code] or [0]
    for rank in failed[:_MAX_LOGS]:
        with suppress(OSError):  # the log was removed
            lines = log_tail(directory, lease, rank, _MAX_LINES, _MAX_BYTES)
            if any(map(_OUT_OF_MEMORY.search, lines)):
                return True
    return False
