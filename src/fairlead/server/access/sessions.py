"""Sessions of browsers: a token in a cookie, encrypted with a key that only the page holds.

Scripts cannot read the cookie. Browsers also send it to other ports of the host, but never the
key, which the page keeps for its own origin and sends in a header. The server stores nothing, so a
session outlives a restart, and the token's expiry, revocation and scopes hold as always.
"""

from typing import NamedTuple

from cryptography.fernet import Fernet, InvalidToken
from starlette.requests import HTTPConnection

from fairlead.model.errors import InputError
from fairlead.server.access.tokens import AuthError

KEY_HEADER = "Fairlead-Key"
"""header with the key of a session; other sites cannot send it"""
SESSION_S = 7 * 86400
"""seconds for which a session is valid"""
_MAX_COOKIE = 3800
"""browsers drop cookies above 4096 bytes, name and attributes included"""


class SealedToken(NamedTuple):
    """An encrypted token, and the key that decrypts it."""

    key: str
    cookie: str


def seal(token: str) -> SealedToken:
    """Encrypt a token with a new key; raise InputError if it does not fit into a cookie."""
    key = Fernet.generate_key()
    cookie = Fernet(key).encrypt(token.encode()).decode()
    if len(cookie) > _MAX_COOKIE:
        problem = f"{len(token)} characters are too many for a browser's cookie"
        raise InputError(problem, fix="expected a token made by Fairlead", field="token")
    return SealedToken(key.decode(), cookie)


def unseal(sealed: SealedToken) -> str:
    """Return the token of a session; AuthError if the session has expired or is not valid."""
    try:
        return Fernet(sealed.key).decrypt(sealed.cookie, ttl=SESSION_S).decode()
    except (InvalidToken, ValueError, TypeError):
        raise AuthError("session: not valid or expired: log in again", known=False) from None


def session_of(request: HTTPConnection) -> SealedToken | None:
    """Return the session of a request; None without a key or with a token of its own."""
    key = request.headers.get(KEY_HEADER)
    if key is None or "Authorization" in request.headers:
        return None
    return SealedToken(key, request.cookies.get(cookie_name(request), ""))


def cookie_name(request: HTTPConnection) -> str:
    """Return the name of the session's cookie, by port: all ports of a host share its cookies."""
    return f"fairlead-session-{request.url.port or request.url.scheme}"
