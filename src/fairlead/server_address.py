"""Addresses of servers."""

from urllib.parse import SplitResult, urlsplit

from fairlead.server_error import ServerError


def parse_address(url: str) -> SplitResult:
    """Return the parts of a server's address; ServerError if it is not one."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port out of range, a missing bracket
        usable = False
    if not usable:
        raise ServerError(
            f"server: bad address {url!r}: expected one such as http://127.0.0.1:8642"
        )
    return parts
