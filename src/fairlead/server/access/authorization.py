"""Who makes a request, and which jobs are theirs to see and change.

Dependencies are coroutines though they wait for nothing: FastAPI would call plain functions in
threads. They depend on nothing in turn: resolving each costs more than what it does.
"""

from typing import Annotated

from fastapi import Depends, Request

from fairlead.live.driver import Live
from fairlead.model.errors import FairleadError
from fairlead.server.access.rate_limits import RateLimiters
from fairlead.server.access.tokens import AuthError, Principal, Tokens


class NotFoundError(FairleadError):
    """There is nothing of this name, or nothing that may be shown."""

    code = "missing"


async def _live(request: Request) -> Live:
    found: Live = request.app.state.live
    return found


async def _tokens(request: Request) -> Tokens:
    found: Tokens = request.app.state.tokens
    return found


def rate_limiters_of(request: Request) -> RateLimiters:
    """Return the server's limits on how often one may ask."""
    found: RateLimiters = request.app.state.gates
    return found


def refused(request: Request, error: AuthError) -> AuthError:
    """Count a token that is not good against its address, and return the refusal."""
    rate_limiters_of(request).refusals.take(request.client.host if request.client else "")
    return error


def bearer(request: Request) -> str:
    """Return the token that a request shows."""
    kind, _, text = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not text:
        raise AuthError("a token is needed: Authorization: Bearer …", known=False)
    return text


LiveDependency = Annotated[Live, Depends(_live)]
TokensDependency = Annotated[Tokens, Depends(_tokens)]


async def _who(request: Request) -> Principal:
    state, shown = request.app.state, bearer(request)
    try:
        found: Principal = state.tokens.recognise(shown, state.live.clock.now())
    except AuthError as error:
        raise refused(request, error) from None
    request.state.who = found.name
    # Only the token itself counts, once it is known to be good: nobody can use up another's.
    rate_limiters_of(request).requests.take(shown)
    return found


Who = Annotated[Principal, Depends(_who)]


def find(live: Live, who: Principal, job_id: str) -> int:
    """Return a job's number if it exists and is shown to whoever asks."""
    number = live.scheduler.jobs.number.get(job_id)
    if number is None or not who.can_see(live.scheduler.jobs.jobs[number].tenant):
        raise NotFoundError(f"there is no job {job_id!r}")
    return number


def require_owned_job(live: Live, who: Principal, job_id: str) -> int:
    """Return a job's number if whoever asks may change it."""
    number = find(live, who, job_id)
    who.require_tenant(live.scheduler.jobs.jobs[number].tenant)
    return number
