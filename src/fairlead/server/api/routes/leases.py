"""Leases: what job processes say and ask."""

from fastapi import APIRouter, Request

from fairlead.server.access.authorization import bearer, rate_limiters_of, refused
from fairlead.server.access.tokens import AuthError
from fairlead.server.api import schemas as msg
from fairlead.server.api.renewals import renewed

leases = APIRouter(prefix="/v1/leases", tags=["leases"])


@leases.post("/{lease}/renew")
async def renew(lease: int, told: msg.Renewal, request: Request) -> msg.Renewed:
    """Take in a job's progress and say how long its lease lasts; for job processes only."""
    state = request.app.state
    try:
        answer = renewed(
            state.live, state.tokens, rate_limiters_of(request), lease, bearer(request), told
        )
    except AuthError as error:
        raise refused(request, error) from None
    return msg.Renewed(**answer)  # type: ignore[arg-type]  # made for it
