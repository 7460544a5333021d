"""Jobs: submitting, looking at, changing and ending them, and what they print."""

import asyncio
import json
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Response

from fairlead.core.jobs import JobState
from fairlead.engines.keeper.log_file import read_leases
from fairlead.live.job_spec import JobSpec
from fairlead.model import events as ev
from fairlead.model.job import DEFAULT_TENANT
from fairlead.server.access.authorization import (
    LiveDependency,
    Who,
    find,
    require_owned_job,
)
from fairlead.server.api import schemas as msg
from fairlead.server.api.schemas import TEXT
from fairlead.server.api.views import job_row, job_view, listed
from fairlead.store import Audit

_MOST_LOG = 1 << 20

jobs = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@jobs.post("", status_code=201)
async def submit(new: msg.NewJob, live: LiveDependency, who: Who) -> msg.JobView:
    """Submit a job; it is on disk when this returns."""
    tenant = new.tenant or who.tenant or DEFAULT_TENANT
    who.require_tenant(tenant)
    values = new.model_dump()
    values["command"] = tuple(new.command)
    values["accelerators"] = tuple(new.accelerators) if new.accelerators else None
    made = await live.submit(JobSpec(**{**values, "tenant": tenant}), who.name)
    return job_view(live, live.scheduler.jobs.number[made.id])


@jobs.get("", response_model=list[msg.JobView])
async def list_jobs(
    live: LiveDependency,
    who: Who,
    state: msg.State | None = None,
    tenant: str | None = None,
    name: Annotated[str | None, Query(max_length=128)] = None,
    multijob: str | None = None,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    newest: bool = False,
) -> Response:
    """List jobs, oldest first, from the ``after``-th on; ``name`` is a pattern such as lr-*.

    Of more than ``limit`` the first are listed, or the ``newest``.
    """
    seen, all_jobs, found = live.scheduler.jobs, live.scheduler.jobs.jobs, []
    visible = [who.can_see(t.id) and tenant in (None, t.id) for t in seen.tenants]
    numbers = listed(live, np.array(visible, dtype=bool), state, after)
    for number in (numbers[::-1] if newest else numbers).tolist():
        if multijob not in (None, all_jobs[number].multijob):
            continue
        if name is not None and not fnmatchcase(live.specs[seen.ids[number]].name, name):
            continue
        found.append(job_row(live, number))
        if len(found) == limit:
            break
    if newest:
        found.reverse()
    # Rows are of JobView's form already; validating a thousand of them takes most of the time.
    return Response(json.dumps(found), media_type="application/json")


@jobs.get("/{job_id}")
async def show(job_id: str, live: LiveDependency, who: Who) -> msg.JobView:
    """Show one job."""
    return job_view(live, find(live, who, job_id))


@jobs.patch("/{job_id}")
async def change(job_id: str, new: msg.JobChange, live: LiveDependency, who: Who) -> msg.JobView:
    """Change a job's priority, weight or deadline."""
    number = require_owned_job(live, who, job_id)
    given = {key: value for key, value in new.model_dump().items() if value is not None}
    audit = Audit(live.clock.now(), who.name, "change", job_id, json.dumps(given))
    known = live.scheduler.jobs.jobs
    await live.change(lambda at: ev.JobChanged(at, replace(known[number], **given)), audit)
    return job_view(live, number)


@jobs.post("/{job_id}/cancel")
async def cancel(job_id: str, live: LiveDependency, who: Who) -> msg.JobView:
    """End a job for good."""
    number = require_owned_job(live, who, job_id)
    await live.cancel(job_id, who.name)
    return job_view(live, number)


@jobs.post("/{job_id}/suspend")
async def suspend(job_id: str, live: LiveDependency, who: Who) -> msg.JobView:
    """Have a job checkpoint, leave its devices, and wait."""
    number = require_owned_job(live, who, job_id)
    await live.hold(job_id, who.name)
    return job_view(live, number)


@jobs.post("/{job_id}/resume")
async def resume(job_id: str, live: LiveDependency, who: Who) -> msg.JobView:
    """Let a suspended job run again."""
    number = require_owned_job(live, who, job_id)
    if live.scheduler.jobs.state[number] == JobState.HELD:
        await live.release(job_id, who.name)
    return job_view(live, number)


@jobs.get("/{job_id}/logs", responses=TEXT)
async def logs(
    job_id: str,
    live: LiveDependency,
    who: Who,
    rank: Annotated[int, Query(ge=0, lt=100_000)] = 0,
    after: Annotated[int, Query(ge=0, le=1 << 50)] = 0,
) -> Response:
    """Return what a job's processes printed, of all its leases, from byte ``after`` on.

    The header Fairlead-Next says from where to go on: that is farther than the answer is long
    where a process has printed more than the server keeps of it.
    """
    find(live, who, job_id)
    home = live.orders.home(job_id) / "logs"
    text, reached = await asyncio.to_thread(read_leases, home, rank, after, _MOST_LOG)
    headers = {"Fairlead-Next": str(reached)}
    return Response(text, media_type="text/plain; charset=utf-8", headers=headers)
