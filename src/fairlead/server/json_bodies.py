"""Bodies of requests are JSON, also where the header Content-Type names something else.

``curl --data`` names a form. The header protects nothing here: a page of another site could send
a body without it, but neither a bearer token nor the key of a session, and its own Origin is
refused (`fairlead.server.access.hosts`).
"""

from starlette.types import ASGIApp, Receive, Scope, Send

_PREFIX = "/v1/"
_METHODS = ("POST", "PUT", "PATCH")
_TYPE = (b"content-type", b"application/json")


class JsonBodyMiddleware:
    """Lets the framework read the bodies of all requests to the REST API as JSON."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with the type of its body if it has another."""
        if _may_have_body(scope) and _TYPE not in scope["headers"]:
            others = [header for header in scope["headers"] if header[0] != _TYPE[0]]
            scope = {**scope, "headers": [*others, _TYPE]}
        await self._app(scope, receive, send)


def _may_have_body(scope: Scope) -> bool:
    return (
        scope["type"] == "http"
        and scope["method"] in _METHODS
        and scope["path"].startswith(_PREFIX)
    )
