"""Routes for many jobs at once: each request is one transaction."""

import asyncio
from collections.abc import Sequence

from fastapi import APIRouter, Response
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from fairlead.live.driver import Live
from fairlead.live.inputs.pieces import slices
from fairlead.live.job_requests.rejections import Reject, at_entry, reject_request
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.submission.batch import check_fields, combine_fields
from fairlead.model.submission.new_job import NewJob
from fairlead.server.access.authorization import (
    ContextDependency,
    CurrentPrincipal,
    NotFoundError,
    require_owned_job,
)
from fairlead.server.access.tokens import AuthError, Principal
from fairlead.server.api.batches.admission import submit_jobs
from fairlead.server.api.batches.messages import ChangedJobs, JobBatch, JobChanges
from fairlead.server.api.job_messages import JobView
from fairlead.server.api.views import job_row

batches = APIRouter(prefix="/v1/jobs", tags=["jobs"])
_NEW_JOB: TypeAdapter[NewJob] = TypeAdapter(NewJob)


@batches.post("/batch", status_code=201, response_model=list[JobView])
async def submit_batch(
    batch: JobBatch, server: ContextDependency, principal: CurrentPrincipal
) -> Response:
    """Submit several jobs, all or none; they are persisted when this returns.

    An error names the first job that is rejected: `jobs[17].gang`. With an idempotency key, a
    repeated request returns the jobs of the first. Jobs can wait for others of the request, by
    their names, and for jobs that were submitted before. Counts as one request per job.
    """
    server.rate_limiters.requests.charge(principal.id, len(batch.jobs) - 1)
    jobs = await asyncio.to_thread(_read_jobs, batch)
    made = await submit_jobs(server, principal, jobs, reject_request)
    body = await _rows(server.live, [spec.id for spec in made])
    return Response(body, status_code=201, media_type="application/json")


@batches.post("/changes", response_model=ChangedJobs)
async def change_jobs(
    request: JobChanges, server: ContextDependency, principal: CurrentPrincipal
) -> Response:
    """Cancel, suspend, resume or change several jobs, all or none.

    With `partial` the jobs that cannot be changed, or not by this token, are listed, and the
    others change. Counts as one request per job.
    """
    principal.require("admin", "tenant")
    live = server.live
    server.rate_limiters.requests.charge(principal.id, len(request.jobs) - 1)
    _check(request)
    rejected: dict[str, FairleadError] = {}

    def skip(index: int, error: FairleadError) -> None:
        rejected[owned[index]] = error

    owned = _owned_jobs(live, principal, request, rejected)
    await _apply(live, principal, request, owned, skip if request.partial else reject_request)
    refusals = [
        {"id": job_id, "code": error.code, "message": str(error)}
        for job_id, error in rejected.items()
    ]
    rows = await _rows(live, [job_id for job_id in request.jobs if job_id not in rejected])
    body = b'{"jobs":%b,"rejected":%b}' % (rows, to_json(refusals))
    return Response(body, media_type="application/json")


def _read_jobs(batch: JobBatch) -> list[NewJob]:
    """Return the jobs of a batch; an error names the first that is invalid."""
    check_fields(batch.common, batch.jobs)
    jobs = []
    for index, own in enumerate(batch.jobs):
        fields = combine_fields(batch.common, own)
        if batch.idempotency_key:
            fields.setdefault("idempotency_key", f"{batch.idempotency_key}/{index}")
        try:
            jobs.append(_NEW_JOB.validate_python(fields))
        except ValidationError as error:
            first = error.errors()[0]
            place = ("body", "jobs", index, *first["loc"])
            raise RequestValidationError([{**first, "loc": place}]) from None
        except InputError as error:
            raise at_entry(index, error) from None
    return jobs


def _check(request: JobChanges) -> None:
    """Raise InputError unless the fields of a change fit together."""
    if request.force and request.action != "cancel":
        raise InputError("set for another action", fix="expected cancel with it", field="force")
    if (request.set is not None) != (request.action == "change"):
        fix = "expected it with the action change, and only with it"
        problem = "missing" if request.set is None else "set for another action"
        raise InputError(problem, fix=fix, field="set")
    seen: set[str] = set()
    for index, job_id in enumerate(request.jobs):
        if job_id in seen:
            error = InputError(f"job {job_id!r} is listed twice", fix="expected each job once")
            raise at_entry(index, error)
        seen.add(job_id)


def _owned_jobs(
    live: Live, principal: Principal, request: JobChanges, rejected: dict[str, FairleadError]
) -> list[str]:
    """Return the jobs of a request that the principal may change."""
    owned = []
    for index, job_id in enumerate(request.jobs):
        try:
            require_owned_job(live, principal, job_id)
        except (NotFoundError, AuthError) as error:
            if not request.partial:
                raise at_entry(index, error) from None
            rejected[job_id] = error
        else:
            owned.append(job_id)
    return owned


async def _apply(
    live: Live, principal: Principal, request: JobChanges, job_ids: Sequence[str], reject: Reject
) -> None:
    changes, user = live.jobs.changes, principal.actor
    if request.set is not None:
        is_admin, detail = principal.role == "admin", request.set.detail
        await changes.adjust(
            job_ids, user, request.set.apply_to, detail, is_admin=is_admin, reject=reject
        )
    elif request.action == "suspend":
        await changes.suspend(job_ids, user, reject)
    elif request.action == "resume":
        await changes.resume(job_ids, user, reject)
    elif request.force:
        await live.force_cancel(job_ids, user, reject)
    else:
        await changes.cancel(job_ids, user, reject=reject)


async def _rows(live: Live, job_ids: Sequence[str]) -> bytes:
    """Return the current states of jobs as JSON; one that was removed meanwhile has none."""
    parts = []
    for piece in slices(job_ids):
        numbers = [live.queries.job_number(job_id) for job_id in piece if job_id in live.specs]
        if numbers:
            parts.append(to_json([job_row(live, number) for number in numbers])[1:-1])
        await asyncio.sleep(0)
    return b"[%b]" % b",".join(parts)
