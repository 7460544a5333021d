"""Tokens of users, stored as hashes, and tokens of leases, computed from a secret."""

import hashlib
import hmac
import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from fairlead.model.errors import FairleadError
from fairlead.store import Actor, Change, Put, Remove

_USE_INTERVAL_S = 60.0
"""time between two records of a token's last use"""
_NO_DIGEST = "-" * 64
"""stands for the digest of a missing secret: no secret has it"""
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
    id: str = ""
    """id of its token, or its OIDC subject"""
    scopes: Collection[str] = ()
    """parts of the API that it may use; none: all that its role permits"""

    @property
    def actor(self) -> Actor:
        """The principal as the audit trail names it."""
        return Actor(self.name, self.role, self.id)

    def require_scope(self, scope: str) -> None:
        """Raise AuthError unless its scopes include this one."""
        if self.scopes and scope not in self.scopes:
            listed = ", ".join(sorted(self.scopes))
            raise AuthError(
                f"scope {scope}: expected in the token's scopes ({listed})", known=True
            )

    def require_scopes_of(self, scopes: Collection[str]) -> None:
        """Raise AuthError unless its scopes include those of another token."""
        if self.scopes and not (scopes and set(scopes) <= set(self.scopes)):
            listed = ", ".join(sorted(self.scopes))
            raise AuthError(
                f"scopes: expected some of the requesting token's ({listed})", known=True
            )

    def can_see(self, tenant: str) -> bool:
        """Return whether it may see the jobs of a tenant."""
        return self.role != "tenant" or tenant == self.tenant or tenant in self.sees

    @property
    def view(self) -> tuple[str, ...]:
        """Key of the tenants that it can see: principals with the same key see the same jobs."""
        return (self.tenant or "", *self.sees) if self.role == "tenant" else ()

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
    scopes: Sequence[str] = ()
    old_digest: str | None = None
    """hash of the secret before the last rotation"""
    old_until: float = 0.0
    """time until which the old secret is valid"""

    def has_expired(self, at: float) -> bool:
        """Return whether it has expired at a time."""
        return self.expires_at is not None and at >= self.expires_at


def read_token(document: str) -> Token:
    """Return a stored token."""
    return Token(**json.loads(document))


class Tokens:
    """All tokens; the caller persists the changes."""

    def __init__(
        self, documents: dict[str, str], secret: bytes, used: Mapping[str, str] | None = None
    ) -> None:
        self._by_id = {key: read_token(body) for key, body in documents.items()}
        self._secret = secret
        self._used_at = {key: float(at) for key, at in (used or {}).items()}

    def make(
        self,
        name: str,
        role: Role,
        *,
        tenant: str | None = None,
        at: float,
        lasts_s: float | None = None,
        sees: Sequence[str] = (),
        scopes: Sequence[str] = (),
    ) -> tuple[str, Token, Change]:
        """Return a new token, its stored part, and the change that stores it."""
        id_, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        expires_at = None if lasts_s is None else at + lasts_s
        token = Token(
            id_,
            name,
            role,
            _digest(secret),
            tenant,
            at,
            expires_at,
            sees=tuple(sees),
            scopes=tuple(scopes),
        )
        return f"fl_{id_}_{secret}", token, self._put(token)

    def rotate(self, id_: str, *, at: float, overlap_s: float) -> tuple[str, Token, Change]:
        """Give a token a new secret; the old one stays valid for ``overlap_s``."""
        old, secret = self._by_id[id_], secrets.token_urlsafe(32)
        token = replace(
            old, digest=_digest(secret), old_digest=old.digest, old_until=at + overlap_s
        )
        return f"fl_{id_}_{secret}", token, self._put(token)

    def revoke(self, id_: str) -> Sequence[Change]:
        """Remove a token; return the changes that remove it, none for an unknown id."""
        if self._by_id.pop(id_, None) is None:
            return ()
        self._used_at.pop(id_, None)
        return Remove("token", id_), Remove("token-use", id_)

    def find(self, id_: str) -> Token | None:
        """Return the token with an id."""
        return self._by_id.get(id_)

    def used_at(self, id_: str) -> float | None:
        """Return the time of a token's last use, exact to a minute."""
        return self._used_at.get(id_)

    def record_use(self, id_: str, at: float) -> Change | None:
        """Record the use of a token; return a change to persist, at most one in a minute."""
        if id_ not in self._by_id or 0 <= at - self._used_at.get(id_, -1e18) < _USE_INTERVAL_S:
            return None
        self._used_at[id_] = at
        return Put("token-use", id_, repr(at))

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
        digest = _digest(secret)
        # Unknown ids take as long as known ones: two digests are compared for both.
        current = hmac.compare_digest(digest, token.digest if token else _NO_DIGEST)
        old = hmac.compare_digest(digest, (token and token.old_digest) or _NO_DIGEST)
        if prefix != "fl" or token is None or not (current or (old and at < token.old_until)):
            raise AuthError("unknown token", known=False)
        if token.has_expired(at):
            raise AuthError("expired token", known=False)
        return Principal(
            token.name, token.role, token.tenant, token.sees, token.id, frozenset(token.scopes)
        )

    def _put(self, token: Token) -> Change:
        self._by_id[token.id] = token
        return Put("token", token.id, json.dumps(asdict(token)))

    def lease_token(self, lease: int) -> str:
        """Return the token of a lease, which permits its renewal only."""
        return hmac.new(self._secret, f"lease:{lease}".encode(), hashlib.sha256).hexdigest()

    def is_lease_token(self, text: str, lease: int) -> bool:
        """Return whether a token belongs to a lease."""
        return hmac.compare_digest(text.encode(), self.lease_token(lease).encode())


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
