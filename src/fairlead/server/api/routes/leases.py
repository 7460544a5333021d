"""Routes for job processes: renewal of leases, values of secrets."""

import structlog
from fastapi import APIRouter, Request, Response

from fairlead.model.errors import ProtocolError
from fairlead.model.submission.secrets import parse_secrets
from fairlead.server.access.authorization import (
    ContextDependency,
    bearer_token,
    count_failed_login,
)
from fairlead.server.access.tokens import AuthError
from fairlead.server.api import schemas as msg
from fairlead.server.api.renewals import answer_renewal

log = structlog.get_logger("fairlead.secrets")

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


@leases.post("/{lease}/secrets")
async def send_secrets(
    lease: int, server: ContextDependency, request: Request, response: Response
) -> msg.LeaseSecrets:
    """Return the values of the secrets of a lease's job; for keepers, while the lease is open."""
    token = bearer_token(request)
    if not server.tokens.is_lease_token(token, lease):
        error = AuthError(f"token: not valid for lease {lease}", known=False)
        raise count_failed_login(request, error)
    server.rate_limiters.secrets.take(lease)
    opened = server.live.leases.get(lease)
    if opened is None:
        raise ProtocolError(f"lease {lease}: already ended")
    spec = server.live.specs[opened.job]
    values = server.secrets.values(spec.tenant, parse_secrets(spec.secrets))
    log.info("lease.secrets", job=spec.id, lease=lease, names=sorted(spec.secrets))
    response.headers["Cache-Control"] = "no-store"
    return msg.LeaseSecrets(values=values)
