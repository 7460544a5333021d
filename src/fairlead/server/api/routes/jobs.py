"""Routes for jobs: submit, list, change, suspend, resume, cancel, logs."""

import asyncio
import json
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Response

from fairlead.core.queries import JobState
from fairlead.engines.base import SupportsCommandCheck, SupportsCopies, SupportsTenantCheck
from fairlead.engines.keeper.container import require_runtime
from fairlead.engines.keeper.log_file import read_leases
from fairlead.live.job_spec import JobSpec
from fairlead.live.tenants import changed_job
from fairlead.model import events as ev
from fairlead.model.errors import InputError
from fairlead.model.job import DEFAULT_TENANT
from fairlead.model.submission.new_job import NewJob
from fairlead.model.submission.secrets import parse_secrets
from fairlead.server.access.authorization import (
    ContextDependency,
    CurrentPrincipal,
    LiveDependency,
    find_visible_job,
    require_owned_job,
)
from fairlead.server.access.tokens import Principal
from fairlead.server.api.job_list import JobQuery, Order
from fairlead.server.api.job_messages import JobChange, JobView, State
from fairlead.server.api.schemas import TEXT
from fairlead.server.api.views import job_view, job_view_with_log
from fairlead.server.context import ServerContext
from fairlead.store import Audit
from fairlead.store.audit import changed_values

_MAX_LOG_BYTES = 1 << 20

jobs = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@jobs.post("", status_code=201)
async def submit(new: NewJob, server: ContextDependency, principal: CurrentPrincipal) -> JobView:
    """Submit a job; it is persisted when this returns."""
    live = server.live
    tenant = new.tenant or principal.tenant or DEFAULT_TENANT
    principal.require_tenant(tenant)
    server.secrets.require(tenant, parse_secrets(new.secrets).values())
    _require_known_tenant(server, principal, tenant)
    if isinstance(live.engine, SupportsTenantCheck):
        await asyncio.to_thread(live.engine.check_tenant, tenant)
    if isinstance(live.engine, SupportsCommandCheck):
        await asyncio.to_thread(_check_command, live.engine, new)
    if (new.max_copies or 1) > 1 and not isinstance(live.engine, SupportsCopies):
        problem = "this server's engine cannot merge the checkpoints of copies"
        raise InputError(problem, fix="expected none, or 1", field="max_copies")
    if new.code_snapshot:
        snapshots = server.code_snapshots
        await asyncio.to_thread(snapshots.require, tenant, new.code_snapshot)
    is_admin = principal.role == "admin"
    made = await live.jobs.submit(JobSpec.of(new, tenant), principal.actor, is_admin=is_admin)
    await live.tenants.list_again(tenant)
    return job_view(live, live.queries.job_number(made.id))


def _check_command(engine: SupportsCommandCheck, new: NewJob) -> None:
    """Raise InputError if the engine's machine lacks the program, or a runtime for its image."""
    if new.container:
        require_runtime(new.container)
    elif not new.code_snapshot or "/" not in new.command[0]:  # otherwise it is in the snapshot
        engine.check_command(new.command, new.directory, new.environment)


def _require_known_tenant(server: ServerContext, principal: Principal, tenant: str) -> None:
    """Raise InputError if a job would create a tenant that no admin has named.

    An admin names a tenant by setting it, or by making a token for it.
    """
    if server.info.create_tenants or tenant in (principal.tenant, DEFAULT_TENANT):
        return
    known = [one.id for one in server.live.tenants.listed]
    known += [token.tenant for token in server.tokens.list() if token.tenant is not None]
    if tenant not in known:
        names = ", ".join(sorted({DEFAULT_TENANT, *known})[:10])
        raise InputError(
            f"no tenant {tenant!r}",
            fix=f"expected one of {names}, or a new one: `fairlead tenants set {tenant}`",
            field="tenant",
        )


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
    details = json.dumps(new.model_dump(exclude_none=True))
    values: dict[str, Any] = {}

    def event(at: float) -> ev.JobChanged:
        old = live.queries.job(number)
        is_admin = principal.role == "admin"
        job = changed_job(live.scheduler, old, new.apply_to(old), is_admin=is_admin)
        values.update(changed_values(old, job))
        return ev.JobChanged(at, job)

    now = live.clock.now()
    audit = Audit(now, principal.actor, "change", job_id, details, changes=values)
    await live.jobs.change(event, audit)
    return job_view(live, number)


@jobs.post("/{job_id}/cancel")
async def cancel(
    job_id: str, live: LiveDependency, principal: CurrentPrincipal, force: bool = False
) -> JobView:
    """Cancel a job; with ``force``, kill its processes at once, also of a cancelled job."""
    number = require_owned_job(live, principal, job_id)
    if force:
        await live.force_cancel(job_id, principal.actor)
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
    if live.queries.job_state(number) == JobState.HELD:
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
    home = live.orders.log_dir(job_id)
    text, reached = await asyncio.to_thread(read_leases, home, rank, after, _MAX_LOG_BYTES)
    headers = {"Fairlead-Next": str(reached)}
    return Response(text, media_type="text/plain; charset=utf-8", headers=headers)
