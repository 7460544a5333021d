"""Renewals, answered before the framework looks at them: they are most of what is ever asked.

A thousand nodes renew hundreds of times a second, and more when a round ends. What FastAPI does
for a request costs ten times what a renewal does itself. Requests that are not as they should be
are left to the framework, so that all refusals look alike.
"""

import json

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead import failpoints
from fairlead.live.driver import Live
from fairlead.model.errors import FairleadError, ProtocolError
from fairlead.server.access.rate_limits import RateLimiters
from fairlead.server.access.tokens import AuthError, Tokens
from fairlead.server.api.schemas import Renewal

_PREFIX, _SUFFIX = "/v1/leases/", "/renew"
_MAX_LEASE_DIGITS = 20


def renewed(
    live: Live, tokens: Tokens, gates: RateLimiters, lease: int, bearer: str, told: Renewal
) -> dict[str, object]:
    """Take in what a member tells and return its answer; refuse wrong tokens and ended leases."""
    if not tokens.is_lease_token(bearer, lease):
        raise AuthError("the token is not this lease's", known=False)
    gates.renewals.take(lease)
    failpoints.point("server.renewal.heard")
    answer = live.renew(lease, dict(told))
    failpoints.point("server.renewal.answered")
    if answer is None:
        raise ProtocolError(f"lease {lease} is over")
    return answer


class Renewals:
    """Answers renewals itself and passes on every other request."""

    def __init__(self, app: ASGIApp, live: Live, tokens: Tokens, gates: RateLimiters) -> None:
        self._app, self._live, self._tokens, self._gates = app, live, tokens, gates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a good renewal; what else there is to say the framework says."""
        lease = _lease_of(scope)
        if lease is None:
            await self._app(scope, receive, send)
            return
        try:
            body = await _read(receive)
        except HTTPException as error:  # it is too large
            await self._app(scope, _raising_receive(error), send)
            return
        try:
            told = Renewal.model_validate_json(body)
            bearer = _bearer_token(scope)
            answer = renewed(self._live, self._tokens, self._gates, lease, bearer, told)
        except (ValidationError, FairleadError):
            # Nothing has happened yet but a count against this lease's renewals.
            await self._app(scope, _again(body, receive), send)
            return
        text = json.dumps(answer).encode()
        length = str(len(text)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})


def _lease_of(scope: Scope) -> int | None:
    """Return the lease that a request would renew, None for any other request."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    path: str = scope["path"]
    if not (path.startswith(_PREFIX) and path.endswith(_SUFFIX)):
        return None
    number = path[len(_PREFIX) : -len(_SUFFIX)]
    return int(number) if number.isdecimal() and len(number) < _MAX_LEASE_DIGITS else None


def _bearer_token(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, text = value.decode("latin-1").partition(" ")
            return text if kind.lower() == "bearer" else ""
    return ""


async def _read(receive: Receive) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def _raising_receive(error: HTTPException) -> Receive:
    """Return what lets somebody else find out why a body cannot be read."""

    async def refuse() -> Message:
        raise error

    return refuse


def _again(body: bytes, receive: Receive) -> Receive:
    """Return what lets somebody else read a body that was read before."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return left.pop() if left else await receive()

    return again
