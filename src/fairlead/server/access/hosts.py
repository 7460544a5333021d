"""Checks of the headers Host and Origin, against DNS rebinding and cross-site requests.

A page in a user's browser can make its own name point to the server's address, or send requests to
the server; the browser then names that page's host in the header Host or Origin.
"""

import ipaddress
import os
import re
import socket
import threading
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.engines.plugin import ANY_ADDRESS, LOOPBACK
from fairlead.files.parsing.fields import quote
from fairlead.model.errors import InputError
from fairlead.server.error_response import error_response

_HEALTH_PATHS = ("/healthz", "/readyz")
"""paths for load balancers, which name any host and learn nothing here"""
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_MAX_SHOWN = 100
_MAX_CACHED = 1000
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")


def read_allowed_names(text: str) -> tuple[str, ...]:
    """Return the names of the setting ``allowed_hosts``; InputError for one that no Host has."""
    names = tuple(name.strip().lower() for name in text.split(",") if name.strip())
    for name in names:
        if name != "*" and not (_NAME.fullmatch(name) or _is_address(name)):
            raise InputError(
                f"{quote(name)} is not the name of a host",
                fix="expected names without scheme and port, such as cluster.example.org, or *",
                field="allowed_hosts",
            )
    return names


class AllowedHosts:
    """Names and addresses under which a server answers."""

    def __init__(self, host: str, allowed: Iterable[str] = ()) -> None:
        self.configured = frozenset(name.strip().lower() for name in allowed if name.strip())
        nodename = os.uname().nodename.lower()
        self._names = {host.lower(), "localhost", *LOOPBACK, nodename, nodename.partition(".")[0]}
        self._names |= self.configured
        self._any_name = "*" in self.configured
        # Attackers can redirect names, but not addresses.
        self._any_address = host in ANY_ADDRESS
        self._accepted: set[bytes] = set()
        """values of the header Host that have been accepted before"""

    def add_full_name(self) -> None:
        """Add the machine's full name once the resolver, which may be slow, has answered."""
        threading.Thread(
            target=lambda: self._names.add(socket.getfqdn().lower()), daemon=True
        ).start()

    def accepts(self, header: bytes) -> bool:
        """Return whether a value of the header Host names this server."""
        if header in self._accepted:
            return True
        name = host_of(header.decode("latin-1"))
        accepted = name is not None and (
            self._any_name or name in self._names or (self._any_address and _is_address(name))
        )
        if accepted and len(self._accepted) < _MAX_CACHED:
            self._accepted.add(header)
        return accepted

    def accepts_origin(self, origin: bytes, host: bytes) -> bool:
        """Return whether a request with a header Origin comes from this server's own pages."""
        try:
            parts = urlsplit(origin.decode("latin-1"))
            name = parts.hostname
        except ValueError:
            return False
        own = parts.netloc.encode("latin-1").lower() == host.lower()
        return parts.scheme in ("http", "https") and (own or name in self.configured)


def host_of(header: str) -> str | None:
    """Return the name or address in a header Host, without its port; None if it is invalid."""
    try:
        parts = urlsplit(f"//{header}")
        port = parts.port  # raises ValueError for an invalid one
    except ValueError:
        return None
    if parts.netloc != header or parts.username is not None or port == 0:
        return None
    name = parts.hostname
    return name.removesuffix(".") if name else None


class HostMiddleware:
    """Refuses requests to other hosts, and changes that pages of other hosts ask for."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it with status 421 or 403."""
        if scope["type"] != "http" or scope["path"] in _HEALTH_PATHS:
            await self._app(scope, receive, send)
            return
        hosts, origin, has_cookie = [], None, False
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origin = value
            elif name == b"cookie":
                has_cookie = True
        if len(hosts) != 1 or not self._hosts.accepts(hosts[0]):
            await _misdirected(hosts)(scope, receive, send)
            return
        changes = has_cookie or scope["method"] not in _SAFE_METHODS
        if origin is not None and changes and not self._hosts.accepts_origin(origin, hosts[0]):
            problem = (
                f"Origin: {_shown(origin)} is another site: expected no browser, or this server"
            )
            await error_response(403, "denied", problem)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _misdirected(hosts: list[bytes]) -> JSONResponse:
    named = _shown(b", ".join(hosts)) if hosts else "missing"
    problem = f"Host: {named}: expected a name of this server; add others with --allowed-hosts"
    return error_response(421, "usage", problem)


def _shown(value: bytes) -> str:
    return ascii(value.decode("latin-1")[:_MAX_SHOWN])


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
