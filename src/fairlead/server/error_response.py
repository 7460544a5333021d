"""The form of every refusal of the server: ``{"error": {"code", "message", "field"}}``."""

from collections.abc import Mapping

from starlette.responses import JSONResponse


def error_response(
    status: int,
    code: str,
    message: str,
    field: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return a refusal; ``field`` names the part of the request that caused it."""
    body = {"error": {"code": code, "message": message, "field": field}}
    challenge = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return JSONResponse(body, status, {**challenge, **(headers or {})})
