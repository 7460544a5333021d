"""Merges of the checkpoints of a job's copies, before anything continues from them."""

import asyncio
from collections.abc import Mapping
from weakref import WeakValueDictionary

import structlog

from fairlead.job.checkpoint import FencedError
from fairlead.job.copies.merging import merge_copies
from fairlead.live.leases.open_leases import OpenLease
from fairlead.live.leases.orders import LaunchOrderBuilder
from fairlead.untrusted_file import UnusableFileError

log = structlog.get_logger("fairlead.live")


class CopyMerges:
    """Merges the ended copies of jobs; merged copies are not merged again."""

    def __init__(self, orders: LaunchOrderBuilder, leases: Mapping[int, OpenLease]) -> None:
        self._orders, self._leases = orders, leases
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def merge(self, job_id: str) -> None:
        """Merge the copies of a job, unless one is open; OSError if its files cannot be used."""
        lock = self._locks.setdefault(job_id, asyncio.Lock())
        async with lock:
            open_leases = {one.number for one in self._leases.values() if one.job == job_id}
            orders = self._orders
            directory, copies = orders.checkpoint_dir(job_id), orders.copies_dir(job_id)
            try:
                await asyncio.to_thread(merge_copies, directory, copies, open_leases)
            except FencedError as error:  # the job has damaged its fence
                raise UnusableFileError(str(error)) from error

    async def merge_early(self, job_id: str) -> None:
        """Merge the copies of a job before its next lease, which otherwise merges them."""
        try:
            await self.merge(job_id)
        except OSError as error:
            log.warning("copies.not_merged", job=job_id, error=str(error))
