"""Tokens of users, stored as hashes, and tokens of leases, computed from a secret."""

import hashlib
import hmac
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from fairlead.model.errors import FairleadError
from fairlead.store import Change, Put, Remove

Role = Literal["admin", "tenant", "viewer"]


class AuthError(FairleadError):
    """An unknown client, or a known one without the permission."""

    code = "denied"

    def __init__(self, message: str, *, known: bool) -> None:
        super().__init__(message)
        self.known = known


@dataclass(frozen=True, slots=True)
class Principal:
    """Authenticated sender of a request."""

    name: str
    role: Role
    tenant: str | None = None
    sees: Sequence[str] = ()
    """other tenants whose jobs it may see"""

    def can_see(self, tenant: str) -> bool:
        """Return whether it may see the jobs of a tenant."""
        return self.role != "tenant" or tenant == self.tenant or tenant in self.sees

    def require(self, *roles: Role) -> None:
        """Raise AuthError unless it has one of these roles."""
        if self.role not in roles:
            raise AuthError(f"role {self.role}: expected {' or '.join(roles)}", known=True)

    def require_tenant(self, tenant: str) -> None:
        """Raise AuthError unless it may change objects of a tenant."""
        self.require("admin", "tenant")
        if self.role == "tenant" and tenant != self.tenant:
            raise AuthError(
                f"tenant {tenant!r}: not permitted with a token of tenant {self.tenant!r}",
                known=True,
            )


@dataclass(frozen=True, slots=True)
class Token:
    """Stored part of a token, with a hash of its secret."""

    id: str
    name: str
    role: Role
    digest: str
    tenant: str | None = None
    created_at: float = 0.0
    expires_at: float | None = None
    sees: Sequence[str] = ()

    def has_expired(self, at: float) -> bool:
        """Return whether it has expired at a time."""
        return self.expires_at is not None and at >= self.expires_at


class Tokens:
    """All tokens; the caller persists the changes."""

    def __init__(self, documents: dict[str, str], secret: bytes) -> None:
        self._by_id = {key: Token(**json.loads(body)) for key, body in documents.items()}
        self._secret = secret

    def make(
        self,
        name: str,
        role: Role,
        *,
        tenant: str | None = None,
        at: float,
        lasts_s: float | None = None,
        sees: Sequence[str] = (),
    ) -> tuple[str, Token, Change]:
        """Return a new token, its stored part, and the change that stores it."""
        id_, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        expires_at = None if lasts_s is None else at + lasts_s
        token = Token(id_, name, role, _digest(secret), tenant, at, expires_at, tuple(sees))
        self._by_id[id_] = token
        return f"fl_{id_}_{secret}", token, Put("token", id_, json.dumps(asdict(token)))

    def revoke(self, id_: str) -> Change | None:
        """Remove a token; return the change that removes it, or None for an unknown id."""
        return None if self._by_id.pop(id_, None) is None else Remove("token", id_)

    def is_last_admin(self, id_: str, at: float) -> bool:
        """Return whether this is the last admin token, or the last one that does not expire.

        An admin token that expires does not replace one that does not.
        """
        token = self._by_id.get(id_)
        if token is None or token.role != "admin" or token.has_expired(at):
            return False
        others = [t for t in self._by_id.values() if t.role == "admin" and t.id != id_]
        if token.expires_at is None:
            return all(other.expires_at is not None for other in others)
        return all(other.has_expired(at) for other in others)

    def list(self) -> list[Token]:
        """Return all tokens, oldest first."""
        return sorted(self._by_id.values(), key=lambda token: token.created_at)

    def authenticate(self, text: str, at: float) -> Principal:
        """Return the owner of a token; raise AuthError if it is unknown or has expired."""
        prefix, _, rest = text.partition("_")
        id_, _, secret = rest.partition("_")
        token = self._by_id.get(id_)
        # Unknown ids take as long as known ones: a digest is compared for both.
        known = hmac.compare_digest(_digest(secret), token.digest if token else _digest(""))
        if prefix != "fl" or token is None or not known:
            raise AuthError("unknown token", known=False)
        if token.has_expired(at):
            raise AuthError("expired token", known=False)
        return Principal(token.name, token.role, token.tenant, token.sees)

    def lease_token(self, lease: int) -> str:
        """Return the token of a lease, which permits its renewal only."""
        return hmac.new(self._secret, f"lease:{lease}".encode(), hashlib.sha256).hexdigest()

    def is_lease_token(self, text: str, lease: int) -> bool:
        """Return whether a token belongs to a lease."""
        return hmac.compare_digest(text.encode(), self.lease_token(lease).encode())


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
