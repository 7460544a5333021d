"""The answer to requests that are not done when the server stops."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.model.errors import FairleadError


class StoppingError(FairleadError):
    """The server stops before it has done what a request asks for."""

    code = "stopping"


class InterruptionMiddleware:
    """Answers a request that is cancelled, as the server does with long ones when it stops."""

    def __init__(self, app: ASGIApp, answer: ASGIApp) -> None:
        self._app = app
        self._answer = answer

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
            if has_begun:
                raise
            await self._answer(scope, receive, send)
