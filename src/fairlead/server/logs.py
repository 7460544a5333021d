"""Structured logs: events with fields, as lines for people or JSON for programs, no secrets."""

import logging
import re
import sys
import time
from collections.abc import MutableMapping
from typing import Any, Literal

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = structlog.get_logger("fairlead.access")

_SECRET_FIELDS = {"token", "authorization", "password", "secret", "database"}
_TOKEN = re.compile(r"fl_[0-9a-f]{6,}_[\w-]+")
_PASSWORD = re.compile(r"(\w://[^/\s:@]*):[^@\s/]+@")
_QUIET = ("/v1/leases/", "/healthz", "/readyz", "/metrics")
"""asked so often that they would drown all else: logged with log_level debug only"""
Fields = MutableMapping[str, Any]


def set_up(form: Literal["text", "json"] = "text", level: str = "info") -> None:
    """Send all logs, also those of libraries, to stderr in one form."""
    least: int = getattr(logging, level.upper())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact_secrets,
    ]
    render: Any = structlog.processors.JSONRenderer(default=str) if form == "json" else readable
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
            foreign_pre_chain=shared,
        )
    )
    logging.basicConfig(handlers=[handler], level=max(least, logging.WARNING), force=True)


def redact_secrets(_: object, __: str, fields: Fields) -> Fields:
    """Return the fields of a line with tokens and passwords blotted out."""
    for name, value in fields.items():
        if name in _SECRET_FIELDS:
            fields[name] = "…"
        elif isinstance(value, str) and ("fl_" in value or "://" in value):
            fields[name] = _PASSWORD.sub(r"\1:…@", _TOKEN.sub("fl_…", value))
    return fields


def readable(_: object, __: str, fields: Fields) -> str:
    """Return a line for people: when, how grave, what, and its fields as name=value."""
    head = f"{fields.pop('timestamp', '')} {fields.pop('level', ''):7} {fields.pop('event', '')}"
    trace = fields.pop("exception", None)
    said = [head, *(f"{name}={value}" for name, value in fields.items() if value is not None)]
    return " ".join(said) + (f"\n{trace}" if trace else "")


class AccessLogMiddleware:
    """Writes a line for each request: who asked for what, the status and how long it took."""

    def __init__(self, app: ASGIApp, *, all_paths: bool = False) -> None:
        self._app, self._all_paths = app, all_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and write its line when it is over."""
        quiet = not self._all_paths and scope.get("path", "").startswith(_QUIET)
        if scope["type"] != "http" or quiet:
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, seen)
        finally:
            log.info(
                "request",
                method=scope["method"],
                path=scope["path"],  # without its query: what is asked for, not how
                status=status,
                ms=round(1000 * (time.perf_counter() - began), 2),
                who=scope.get("state", {}).get("who"),
                address=(scope.get("client") or ("",))[0],
            )
