"""The objects of one running server that its routes work on."""

import asyncio
from dataclasses import dataclass, field

from fastapi import Request

from fairlead.live.driver import Live
from fairlead.server.access.rate_limits import RateLimiters
from fairlead.server.access.tokens import Tokens


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Settings that users of the server may see."""

    policy: str = ""
    mechanism: str | None = None


@dataclass(frozen=True, slots=True)
class ServerContext:
    """One running server."""

    live: Live
    tokens: Tokens
    rate_limiters: RateLimiters
    info: ServerInfo
    explaining: asyncio.Lock = field(default_factory=asyncio.Lock)
    """one explanation at a time: each solves repeatedly, and the planner needs a core"""


def context_of(request: Request) -> ServerContext:
    """Return the server that a request was sent to."""
    context: ServerContext = request.app.state.context
    return context
