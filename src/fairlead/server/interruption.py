"""The answer to requests that are not done when the server stops."""

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.model.errors import FairleadError

_READS = ("GET", "HEAD")


class StoppingError(FairleadError):
    """The server stops before it has answered a request, which it may have carried out."""

    code = "stopping"

    @classmethod
    def during(cls, method: str) -> "StoppingError":
        """Return the error of a request with this method."""
        if method in _READS:
            return cls("the server is stopping: ask again when it is back")
        return cls(
            "the server is stopping and may have carried out the request: see, when it is back,"
            " what has changed before you repeat it"
        )


class InterruptionMiddleware:
    """Answers a request that is cancelled, as the server does with long ones when it stops."""

    def __init__(self, app: ASGIApp, answer_to: Callable[[StoppingError], ASGIApp]) -> None:
        self._app = app
        self._answer_to = answer_to

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; give the answer if it is cancelled."""
        has_begun = scope["type"] != "http"

        async def noting_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting_send)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if has_begun or task is None or not task.cancelling():
                raise
            answer = self._answer_to(StoppingError.during(scope["method"]))
            await answer(scope, receive, send)
