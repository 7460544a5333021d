"""Jobs that have ended and hold nothing: the only ones that retention may touch."""

import asyncio
from typing import NamedTuple

from fairlead.core.queries import JobState
from fairlead.live.driver import Live

ENDED = (JobState.FINISHED, JobState.FAILED, JobState.CANCELLED)
_SLICE = 500
"""jobs looked at before requests are served"""


class EndedJob(NamedTuple):
    """One ended job, in the order of the ends."""

    ended_at: float
    id: str


async def ended_jobs(live: Live) -> list[EndedJob]:
    """Return the kept jobs that have ended and whose processes are gone, the oldest end first."""
    jobs = []
    for i, number in enumerate(live.queries.select_jobs(ENDED, running=False).tolist()):
        job_id = live.queries.job_id(number)
        ended_at = live.counters.of(job_id).ended_at
        if job_id in live.specs and ended_at is not None:
            jobs.append(EndedJob(ended_at, job_id))
        if i % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
    busy = {lease.job for lease in live.leases.values()}
    return sorted(job for job in jobs if job.id not in busy)
