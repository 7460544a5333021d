"""Routes for jobs: submit, list, change, suspend, resume, cancel, logs."""

import asyncio
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Response

from fairlead.engines.keeper.log_file import read_leases
from fairlead.model.errors import InputError
from fairlead.model.submission.new_job import NewJob
from fairlead.server.access.authorization import (
    ContextDependency,
    CurrentPrincipal,
    LiveDependency,
    NotFoundError,
    find_visible_job,
    require_owned_job,
)
from fairlead.server.api.batches.admission import submit_jobs
from fairlead.server.api.job_list import JobQuery, Order
from fairlead.server.api.job_messages import JobChange, JobView, State
from fairlead.server.api.schemas import TEXT
from fairlead.server.api.views import job_view, job_view_with_log

_MAX_LOG_BYTES = 1 << 20

jobs = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@jobs.post("", status_code=201)
async def submit(new: NewJob, server: ContextDependency, principal: CurrentPrincipal) -> JobView:
    """Submit a job; it is persisted when this returns."""
    (made,) = await submit_jobs(server, principal, [new])
    return job_view(server.live, server.live.queries.job_number(made.id))


@jobs.get("", response_model=list[JobView])
async def list_jobs(
    server: ContextDependency,
    principal: CurrentPrincipal,
    state: State | None = None,
    tenant: str | None = None,
    name: Annotated[str | None, Query(max_length=128)] = None,
    multijob: str | None = None,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    newest: bool = False,
    unended: bool = False,
    search: Annotated[str, Query(max_length=128)] = "",
    sort: Order | None = None,
    descending: bool = False,
    offset: Annotated[int, Query(ge=0, le=1 << 40)] = 0,
    count: bool = False,
) -> Response:
    """List jobs, oldest first, from number ``after`` on; ``name`` is a pattern such as lr-*.

    Lists the first ``limit`` of them after ``offset``, or the last with ``newest``; with
    ``unended`` only jobs that have not ended. ``search`` is a text in the id, name, tenant,
    workload or accelerator. With ``count`` the header Fairlead-Total holds the number of all
    matching jobs.
    """
    if newest and (sort is not None or descending):
        fix = "expected sort with descending, or newest alone"
        raise InputError("cannot be combined with another order", fix=fix, field="newest")
    live = server.live
    query = JobQuery(
        state=state,
        unended=unended,
        name=name,
        multijob=multijob,
        search=search,
        after=after,
        sort=sort,
        descending=descending,
        offset=offset,
        limit=limit,
        newest=newest,
        count=count,
    )
    known = live.queries.tenants
    visible = [principal.can_see(t.id) and tenant in (None, t.id) for t in known]
    body, total = server.recent_pages.page(live, np.array(visible, dtype=bool), query)
    headers = {} if total is None else {"Fairlead-Total": str(total)}
    return Response(body, media_type="application/json", headers=headers)


@jobs.get("/{job_id}")
async def show(job_id: str, live: LiveDependency, principal: CurrentPrincipal) -> JobView:
    """Show one job."""
    return await job_view_with_log(live, find_visible_job(live, principal, job_id))


@jobs.patch("/{job_id}")
async def change(
    job_id: str, new: JobChange, live: LiveDependency, principal: CurrentPrincipal
) -> JobView:
    """Change a job's priority, weight or deadline."""
    number = require_owned_job(live, principal, job_id)
    await live.jobs.changes.adjust(
        [job_id],
        principal.actor,
        new.apply_to,
        new.detail,
        is_admin=principal.role == "admin",
    )
    return job_view(live, number)


@jobs.post("/{job_id}/cancel")
async def cancel(
    job_id: str, live: LiveDependency, principal: CurrentPrincipal, force: bool = False
) -> JobView:
    """Cancel a job; with ``force``, kill its processes at once, also of a cancelled job."""
    number = require_owned_job(live, principal, job_id)
    if force:
        await live.force_cancel([job_id], principal.actor)
    else:
        await live.jobs.cancel(job_id, principal.actor)
    return job_view(live, number)


@jobs.post("/{job_id}/suspend")
async def suspend(job_id: str, live: LiveDependency, principal: CurrentPrincipal) -> JobView:
    """Suspend a job: it checkpoints, leaves its devices and waits to be resumed."""
    number = require_owned_job(live, principal, job_id)
    await live.jobs.suspend(job_id, principal.actor)
    return job_view(live, number)


@jobs.post("/{job_id}/resume")
async def resume(job_id: str, live: LiveDependency, principal: CurrentPrincipal) -> JobView:
    """Resume a suspended job."""
    number = require_owned_job(live, principal, job_id)
    await live.jobs.resume(job_id, principal.actor)
    return job_view(live, number)


@jobs.get("/{job_id}/logs", responses=TEXT)
async def logs(
    job_id: str,
    live: LiveDependency,
    principal: CurrentPrincipal,
    rank: Annotated[int, Query(ge=0, lt=100_000)] = 0,
    after: Annotated[int, Query(ge=0, le=1 << 50)] = 0,
) -> Response:
    """Return the output of a job's processes under all its leases, from byte ``after`` on.

    The header Fairlead-Next holds the ``after`` of the next request. It is larger than ``after``
    plus the length of the response where the server has dropped old output.
    """
    find_visible_job(live, principal, job_id)
    last = live.specs[job_id].ranks - 1
    if rank > last:
        ranks = f"0 to {last}" if last else "0"
        raise NotFoundError(f"no output from rank {rank} (its ranks: {ranks})")
    home = live.orders.log_dir(job_id)
    text, reached = await asyncio.to_thread(read_leases, home, rank, after, _MAX_LOG_BYTES)
    headers = {"Fairlead-Next": str(reached)}
    return Response(text, media_type="text/plain; charset=utf-8", headers=headers)
