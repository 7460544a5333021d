"""Structured logs without secrets: events with fields, as text or JSON lines on stderr."""

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
_SIGNED_TOKEN = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]*")
_PASSWORD = re.compile(r"(\w://[^/\s:@]*):[^@\s/]+@")
_UNLOGGED_PATHS = ("/v1/leases/", "/healthz", "/readyz", "/metrics", "/web/")
"""prefixes of frequent requests, which are logged at level debug only"""
_NUMBERS = logging.getLevelNamesMapping()
Fields = MutableMapping[str, Any]


class _LevelFilter:
    """Drops events below a level, which may change while the server runs."""

    def __init__(self) -> None:
        self.least = logging.INFO

    def __call__(self, _: object, method: str, fields: Fields) -> Fields:
        """Return the fields of an event that is logged."""
        if _NUMBERS[method.upper()] < self.least:
            raise structlog.DropEvent
        return fields


_LEVEL = _LevelFilter()


def set_up(form: Literal["text", "json"] = "text", level: str = "info") -> None:
    """Send all logs, those of libraries included, to stderr in one format."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact_secrets,
    ]
    render: Any = (
        structlog.processors.JSONRenderer(default=str) if form == "json" else format_text_line
    )
    structlog.configure(
        processors=[_LEVEL, *shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
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
    logging.basicConfig(handlers=[handler], force=True)
    set_level(level)


def set_level(level: str) -> None:
    """Log events of this level and above; those of libraries from level warning on."""
    _LEVEL.least = _NUMBERS[level.upper()]
    logging.getLogger().setLevel(max(_LEVEL.least, logging.WARNING))


def redact_secrets(_: object, __: str, fields: Fields) -> Fields:
    """Return the fields of a log line with tokens and passwords redacted."""
    for name, value in fields.items():
        if name in _SECRET_FIELDS:
            fields[name] = "…"
        elif isinstance(value, str):
            fields[name] = redact(value)
    return fields


def redact(text: str) -> str:
    """Return a text without the tokens and passwords in it."""
    if "fl_" in text or "://" in text:
        text = _PASSWORD.sub(r"\1:…@", _TOKEN.sub("fl_…", text))
    return _SIGNED_TOKEN.sub("eyJ…", text) if "eyJ" in text else text


def format_text_line(_: object, __: str, fields: Fields) -> str:
    """Return a log line as text: time, level, event, and its fields as name=value.

    Control characters are escaped and values with spaces are quoted, so that no value can look
    like another field or another line, or reach the terminal.
    """
    event = escape(str(fields.pop("event", "")))
    head = f"{fields.pop('timestamp', '')} {fields.pop('level', ''):7} {event}"
    trace = fields.pop("exception", None)
    shown = (
        f"{escape(name)}={_quote(value)}" for name, value in fields.items() if value is not None
    )
    lines = str(trace).splitlines() if trace else ()
    return "\n  ".join([" ".join([head, *shown]), *map(escape, lines)])


def escape(text: str) -> str:
    """Return a text with control and invisible characters as escape sequences."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _quote(value: object) -> str:
    text = str(value)
    if " " not in text and '"' not in text:
        return escape(text)
    return '"' + escape(text.replace("\\", "\\\\")).replace('"', '\\"') + '"'


class AccessLogMiddleware:
    """Logs each request with its principal, status and duration."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and log it when it has been answered."""
        frequent = scope.get("path", "").startswith(_UNLOGGED_PATHS)
        quiet = frequent and _LEVEL.least > logging.DEBUG
        if scope["type"] != "http" or quiet:
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def recording_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, recording_send)
        finally:
            log.info(
                "request",
                method=scope["method"],
                path=scope["path"],  # without its query, which may hold secrets
                status=status,
                ms=round(1000 * (time.perf_counter() - began), 2),
                who=scope.get("state", {}).get("principal"),  # lang: ok
                address=(scope.get("client") or ("",))[0],
            )
