"""Authentication of requests, and the jobs that a principal may see and change.

Dependencies are coroutines though they wait for nothing: FastAPI would call plain functions in
threads. They have no dependencies themselves: resolving one costs more than its work.
"""

from typing import Annotated

from fastapi import Depends, Request

from fairlead.live.driver import Live
from fairlead.model.errors import FairleadError
from fairlead.server.access.scopes import required_scope
from fairlead.server.access.sessions import session_of, unseal
from fairlead.server.access.tokens import AuthError, Principal, Tokens
from fairlead.server.context import ServerContext, context_of


class NotFoundError(FairleadError):
    """No object with this name exists, or the principal may not see it."""

    code = "missing"


async def _context(request: Request) -> ServerContext:
    return context_of(request)


async def _live(request: Request) -> Live:
    return context_of(request).live


async def _tokens(request: Request) -> Tokens:
    return context_of(request).tokens


async def _known_principal(request: Request) -> Principal:
    context, token = context_of(request), token_of(request)
    try:
        principal = await context.authenticate(token)
    except AuthError as error:
        raise count_failed_login(request, error) from None
    request.state.principal, request.state.asking = principal.name, principal
    # The limit counts by owner, and only valid tokens: no client can use up another one's.
    context.rate_limiters.requests.take(principal.id)
    return principal


async def _current_principal(request: Request) -> Principal:
    context, principal = context_of(request), await _known_principal(request)
    principal.require_scope(required_scope(request.method, request.scope["path"]))
    use = context.tokens.record_use(principal.id, context.live.clock.now())
    if use is not None:
        context.live.inbox.post(lambda _: [], [use])
    return principal


ContextDependency = Annotated[ServerContext, Depends(_context)]
LiveDependency = Annotated[Live, Depends(_live)]
TokensDependency = Annotated[Tokens, Depends(_tokens)]
CurrentPrincipal = Annotated[Principal, Depends(_current_principal)]
KnownPrincipal = Annotated[Principal, Depends(_known_principal)]
"""the owner of a valid token, whatever its scopes"""


def count_failed_login(request: Request, error: AuthError) -> AuthError:
    """Count an invalid token against the client's address, and return the error."""
    address = request.client.host if request.client else ""
    context_of(request).rate_limiters.failed_logins.take(address)
    return error


def token_of(request: Request) -> str:
    """Return the token of a request: its bearer token, or that of the browser's session."""
    session = session_of(request)
    return bearer_token(request) if session is None else unseal(session)


def bearer_token(request: Request) -> str:
    """Return the bearer token of a request."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise AuthError("missing token: expected the header Authorization: Bearer …", known=False)
    return token


def find_visible_job(live: Live, principal: Principal, job_id: str) -> int:
    """Return the number of a job that the principal may see."""
    # A job that is no longer kept stays in the scheduler's tables, which give numbers.
    number = live.queries.find_job(job_id) if job_id in live.specs else None
    if number is None or not principal.can_see(live.queries.job(number).tenant):
        fix = "expected a job's id: `fairlead jobs --name NAME` finds jobs by name"
        raise NotFoundError(f"no job {job_id!r}: {fix}")
    return number


def require_owned_job(live: Live, principal: Principal, job_id: str) -> int:
    """Return the number of a job that the principal may change."""
    number = find_visible_job(live, principal, job_id)
    principal.require_tenant(live.queries.job(number).tenant)
    return number
