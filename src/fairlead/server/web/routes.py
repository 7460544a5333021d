"""Routes that serve the web pages; they need no token, since the pages hold no data."""

import asyncio

from fastapi import APIRouter, Request, Response

from fairlead.server.access.authorization import NotFoundError
from fairlead.server.web.files import static_files

web = APIRouter(include_in_schema=False)

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # No script can turn text into markup.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Browsers ask each time whether a file has changed: no version mixes with another.
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


@web.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> Response:
    """Return the document that loads the pages."""
    return await _respond(request, "index.html")


@web.api_route("/web/{path:path}", methods=["GET", "HEAD"])
async def asset(path: str, request: Request) -> Response:
    """Return a script, a style sheet or an image."""
    return await _respond(request, path)


async def _respond(request: Request, path: str) -> Response:
    file = (await asyncio.to_thread(static_files)).get(path)
    if file is None:
        raise NotFoundError(f"no page {path[:100]!r}")
    headers = {**HEADERS, "ETag": file.etag}
    if file.etag in request.headers.get("If-None-Match", ""):
        return Response(status_code=304, headers=headers)
    accepts_gzip = "gzip" in request.headers.get("Accept-Encoding", "")
    if accepts_gzip:
        headers["Content-Encoding"] = "gzip"
    body = file.compressed if accepts_gzip else file.body
    return Response(body, media_type=file.media_type, headers=headers)
