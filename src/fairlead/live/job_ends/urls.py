"""URLs of notifications: the prefixes that the operator allows, and the check against them.

The server sends requests to these URLs from inside the operator's network. So a tenant must not be
able to choose where to: without an allowed prefix every URL is refused.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from fairlead.model.errors import InputError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_CHARACTERS = re.compile(r"[!-\[\]-~]+")
"""printable ASCII without space and backslash"""
_DOT_SEGMENT = re.compile(r"(^|/)(\.|%2e){1,2}(/|$)", re.IGNORECASE)
_EXPECTED = "expected a URL such as https://hooks.example.org/jobs/"


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of a URL that a request needs."""

    scheme: str
    host: str
    port: int
    path: str
    query: str = ""

    @property
    def site(self) -> str:
        """Scheme, host and port, without the path, which may hold a secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == _DEFAULT_PORTS[self.scheme]
        return f"{self.scheme}://{host}" + ("" if usual else f":{self.port}")


@dataclass(frozen=True, slots=True)
class AllowedUrls:
    """Prefixes of the URLs that jobs may notify; none: no notifications."""

    prefixes: tuple[Target, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str], field: str = "notify_urls") -> "AllowedUrls":
        """Return the prefixes of a setting; InputError for one that is no URL."""
        return cls(tuple(parse_url(text.strip(), field) for text in texts if text.strip()))

    def check(self, url: str) -> Target:
        """Return the parts of a job's URL; InputError if the operator has not allowed it."""
        target = parse_url(url, "notify")
        if not self.prefixes:
            raise InputError(
                "this server sends no notifications",
                fix=f"expected its operator to allow {target.site}/ with --notify-urls",
                field="notify",
            )
        if not any(_covers(prefix, target) for prefix in self.prefixes):
            sites = ", ".join(prefix.site + prefix.path for prefix in self.prefixes[:5])
            problem = f"{target.site} and this path are not allowed"
            raise InputError(problem, fix=f"expected a URL below {sites}", field="notify")
        return target


def parse_url(url: str, field: str) -> Target:
    """Return the parts of an absolute HTTP URL; InputError unless it is one."""
    try:
        parts = urlsplit(url)
        port = parts.port
        good = _is_usable(url, parts)
    except ValueError:  # a port out of range, a missing bracket
        good, port = False, None
    if not good:
        raise InputError(f"not a usable URL: {url[:100]!r}", fix=_EXPECTED, field=field)
    port = _DEFAULT_PORTS[parts.scheme] if port is None else port
    return Target(parts.scheme, parts.hostname or "", port, parts.path or "/", parts.query)


def site_of(url: str) -> str:
    """Return scheme, host and port of a URL, without the path, which may be a secret."""
    try:
        return parse_url(url, "notify").site if url else ""
    except InputError:  # a damaged document
        return ""


def _is_usable(url: str, parts: SplitResult) -> bool:
    return (
        parts.scheme in _DEFAULT_PORTS
        and bool(parts.hostname)
        and "@" not in parts.netloc
        and not parts.fragment
        and bool(_CHARACTERS.fullmatch(url))
        and not _DOT_SEGMENT.search(parts.path)
    )


def _covers(prefix: Target, target: Target) -> bool:
    """Return whether a URL is on the prefix's host and at or below its path."""
    site = (prefix.scheme, prefix.host, prefix.port)
    if site != (target.scheme, target.host, target.port):
        return False
    below = prefix.path if prefix.path.endswith("/") else f"{prefix.path}/"
    return target.path == prefix.path or target.path.startswith(below)
