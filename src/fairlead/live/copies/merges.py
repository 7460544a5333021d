"""Merges of the checkpoints of a job's copies, before anything continues from them."""

import asyncio
from collections.abc import Mapping, Sequence
from weakref import WeakValueDictionary

import structlog

from fairlead.core.copies import LAST_STEPS
from fairlead.core.queries import Queries
from fairlead.job.checkpoint import FencedError
from fairlead.job.copies.merging import fence_earlier_leases, merge_copies
from fairlead.live.inputs.inbox import Inbox
from fairlead.live.leases.open_leases import OpenLease
from fairlead.live.leases.orders import LaunchOrderBuilder
from fairlead.model import events as ev
from fairlead.untrusted_file import UnusableFileError

log = structlog.get_logger("fairlead.live")


class CopyMerges:
    """Merges the ended copies of jobs; merged copies are not merged again."""

    def __init__(
        self,
        orders: LaunchOrderBuilder,
        leases: Mapping[int, OpenLease],
        queries: Queries,
        inbox: Inbox,
    ) -> None:
        self._orders, self._leases = orders, leases
        self._queries, self._inbox = queries, inbox
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def merge(self, job_id: str, *, to_fork: bool = False) -> int:
        """Merge the copies of a job, unless one is open; return the steps that are saved.

        ``to_fork``: a copy is about to start, and no earlier lease may write from now on. Raises
        OSError if the job's files cannot be used.
        """
        lock = self._locks.setdefault(job_id, asyncio.Lock())
        async with lock:
            open_leases = {one.number for one in self._leases.values() if one.job == job_id}
            orders = self._orders
            directory, copies = orders.checkpoint_dir(job_id), orders.copies_dir(job_id)
            try:
                steps = await asyncio.to_thread(merge_copies, directory, copies, open_leases)
                if to_fork:
                    await asyncio.to_thread(fence_earlier_leases, directory, copies, open_leases)
            except FencedError as error:  # the job has damaged its fence
                raise UnusableFileError(str(error)) from error
        self._count(job_id, steps)
        return steps

    def _count(self, job_id: str, steps: int) -> None:
        """Count the saved steps of leases that were lost, whose ends could not report them."""

        def make(at: float) -> Sequence[ev.Event]:
            number = self._queries.job_number(job_id)
            most = self._queries.job(number).total_steps - LAST_STEPS
            counted = min(float(steps), most)
            if self._queries.has_ended(number) or counted <= self._queries.saved_steps(number):
                return []
            return [ev.StepsSaved(at, job_id, counted)]

        if steps > self._queries.saved_steps(self._queries.job_number(job_id)):
            self._inbox.post(make)

    async def merge_early(self, job_id: str) -> None:
        """Merge the copies of a job before its next lease, which otherwise merges them."""
        try:
            await self.merge(job_id)
        except OSError as error:
            log.warning("copies.not_merged", job=job_id, error=str(error))
