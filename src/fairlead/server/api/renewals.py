"""Renewals of leases, answered ahead of the web framework because they are most of the requests.

A thousand nodes renew hundreds of times per second, and more at the end of a round. FastAPI's work
for a request costs ten times as much as the renewal itself. The middleware passes invalid requests
on to the framework, so that all errors look alike.
"""

import json

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead import failpoints
from fairlead.live.leases.renewal import RenewalAnswer
from fairlead.model.errors import FairleadError, ProtocolError
from fairlead.server.access.tokens import AuthError
from fairlead.server.api.schemas import Renewal
from fairlead.server.context import ServerContext

_PREFIX, _SUFFIX = "/v1/leases/", "/renew"
_MAX_LEASE_DIGITS = 20


def answer_renewal(
    server: ServerContext, lease: int, token: str, renewal: Renewal
) -> RenewalAnswer:
    """Return the answer to a member's renewal; refuse wrong tokens and leases that have ended."""
    if not server.tokens.is_lease_token(token, lease):
        raise AuthError(f"token: not valid for lease {lease}", known=False)
    server.rate_limiters.renewals.take(lease)
    failpoints.point("server.renewal.heard")
    answer = server.live.renew(lease, renewal.to_live())
    failpoints.point("server.renewal.answered")
    if answer is None:
        raise ProtocolError(f"lease {lease}: already ended")
    return answer


class RenewalMiddleware:
    """Answers valid renewals and passes every other request on."""

    def __init__(self, app: ASGIApp, server: ServerContext) -> None:
        self._app, self._server = app, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a valid renewal; let the framework answer anything else."""
        lease = _lease_of(scope)
        if lease is None:
            await self._app(scope, receive, send)
            return
        try:
            body = await _read(receive)
        except HTTPException as error:  # the body is too large
            await self._app(scope, _raising_receive(error), send)
            return
        try:
            renewal = Renewal.model_validate_json(body)
            answer = answer_renewal(self._server, lease, _bearer_token(scope), renewal)
        except (ValidationError, FairleadError):
            # So far the request has only been counted against the lease's rate limit.
            await self._app(scope, _replaying_receive(body, receive), send)
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
            scheme, _, token = value.decode("latin-1").partition(" ")
            return token if scheme.lower() == "bearer" else ""
    return ""


async def _read(receive: Receive) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def _raising_receive(error: HTTPException) -> Receive:
    """Return a ``receive`` that raises the error of the first attempt to read the body."""

    async def refuse() -> Message:
        raise error

    return refuse


def _replaying_receive(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that yields a body which was read before."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return left.pop() if left else await receive()

    return replay
