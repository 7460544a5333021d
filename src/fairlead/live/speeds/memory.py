"""Device memory: a job that has run out of it is not sent to such devices again."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from fairlead.core.queries import Queries
from fairlead.engines.base import Ended
from fairlead.live.executors import BackgroundTasks, Workers
from fairlead.live.history.exits import failed_rank, log_tail
from fairlead.live.inbox import Inbox
from fairlead.model import events as ev
from fairlead.model.speeds.key import SpeedKey

log = structlog.get_logger("fairlead.live")

_OUT_OF_MEMORY = re.compile(
    r"(CUDA|HIP|XPU) out of memory|OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY"
    r"|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED: Out of memory"
)
"""last words of programs of PyTorch, JAX, TensorFlow and CUDA that ran out of device memory"""


class DeviceMemory:
    """Learns from failed leases on which accelerators a workload does not fit.

    The lesson is a measured speed of 0, for the tenant's jobs of the same workload and gang;
    beside a partner, for the pair alone. A job that could run nowhere else keeps its accelerator,
    and fails once its retries are used.
    """

    def __init__(
        self,
        queries: Queries,
        job_dir: Callable[[str], Path],
        workers: Workers,
        inbox: Inbox,
        tasks: BackgroundTasks,
    ) -> None:
        self._queries, self._job_dir = queries, job_dir
        self._workers, self._inbox, self._tasks = workers, inbox, tasks

    def lease_ended(self, ended: Ended) -> None:
        """Read the log of a failed lease in the background; call it while the lease is open."""
        shared = self._queries.shared_devices(ended.lease)
        key = self._queries.speed_key(ended.lease)
        if ended.ending == "failed" and shared is not None and key is not None:
            self._tasks.spawn(self._learn(ended, shared.job_id, key))

    async def _learn(self, ended: Ended, job_id: str, key: SpeedKey) -> None:
        directory, rank = self._job_dir(job_id), failed_rank(ended.exit_codes)
        try:
            lines = await self._workers.write(log_tail, directory, ended.lease, rank)
        except OSError:  # the log was removed
            return
        if not any(map(_OUT_OF_MEMORY.search, lines)):
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
