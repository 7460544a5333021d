"""Routes for job processes: renewal of leases."""

from fastapi import APIRouter, Request

from fairlead.server.access.authorization import (
    ContextDependency,
    bearer_token,
    count_failed_login,
)
from fairlead.server.access.tokens import AuthError
from fairlead.server.api import schemas as msg
from fairlead.server.api.renewals import answer_renewal

leases = APIRouter(prefix="/v1/leases", tags=["leases"])


@leases.post("/{lease}/renew")
async def renew(
    lease: int, renewal: msg.Renewal, server: ContextDependency, request: Request
) -> msg.Renewed:
    """Record a member's progress and return how long its lease lasts; for job processes only."""
    try:
        answer = answer_renewal(server, lease, bearer_token(request), renewal)
    except AuthError as error:
        raise count_failed_login(request, error) from None
    return msg.Renewed(**answer)
