"""Who asks: tokens of people, stored hashed, and tokens of leases, computed from a secret."""

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
    """Nobody we know, or somebody who may not do this."""

    code = "denied"

    def __init__(self, message: str, *, known: bool) -> None:
        super().__init__(message)
        self.known = known


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever makes a request."""

    name: str
    role: Role
    tenant: str | None = None
    sees: Sequence[str] = ()
    """other tenants whose jobs an admin has shared with it"""

    def can_see(self, tenant: str) -> bool:
        """Tell whether jobs of a tenant are shown to it."""
        return self.role != "tenant" or tenant == self.tenant or tenant in self.sees

    def require(self, *roles: Role) -> None:
        """Refuse whoever has none of these roles."""
        if self.role not in roles:
            raise AuthError(f"this needs the role {' or '.join(roles)}", known=True)

    def require_tenant(self, tenant: str) -> None:
        """Refuse whoever may not change what belongs to a tenant."""
        self.require("admin", "tenant")
        if self.role == "tenant" and tenant != self.tenant:
            raise AuthError(
                f"this belongs to tenant {tenant!r}, and your token to {self.tenant!r}", known=True
            )


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of a token: enough to recognise it, not to make it."""

    id: str
    name: str
    role: Role
    digest: str
    tenant: str | None = None
    created_at: float = 0.0
    expires_at: float | None = None
    sees: Sequence[str] = ()

    def has_expired(self, at: float) -> bool:
        """Tell whether it is good for nothing any more."""
        return self.expires_at is not None and at >= self.expires_at


class Tokens:
    """The tokens there are; changes are written by whoever calls."""

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
        """Return a new token, shown this once, what is kept of it, and how to keep that."""
        id_, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        expires_at = None if lasts_s is None else at + lasts_s
        token = Token(id_, name, role, _digest(secret), tenant, at, expires_at, tuple(sees))
        self._by_id[id_] = token
        return f"fl_{id_}_{secret}", token, Put("token", id_, json.dumps(asdict(token)))

    def revoke(self, id_: str) -> Change | None:
        """Forget a token; None if there is none of this id."""
        return None if self._by_id.pop(id_, None) is None else Remove("token", id_)

    def is_last_admin(self, id_: str, at: float) -> bool:
        """Tell whether nobody could administer for as long any more without this token.

        One that expires later does not make up for one that does not.
        """
        mine = self._by_id.get(id_)
        if mine is None or mine.role != "admin" or mine.has_expired(at):
            return False
        others = [t for t in self._by_id.values() if t.role == "admin" and t.id != id_]
        if mine.expires_at is None:
            return all(other.expires_at is not None for other in others)
        return all(other.has_expired(at) for other in others)

    def list(self) -> list[Token]:
        """Return all tokens, oldest first."""
        return sorted(self._by_id.values(), key=lambda token: token.created_at)

    def recognise(self, text: str, at: float) -> Principal:
        """Return whose token this is; refuse one that is unknown or has expired."""
        kind, _, rest = text.partition("_")
        id_, _, secret = rest.partition("_")
        token = self._by_id.get(id_)
        # A digest is compared even for unknown ids, so that time does not tell them apart.
        known = hmac.compare_digest(_digest(secret), token.digest if token else _digest(""))
        if kind != "fl" or token is None or not known:
            raise AuthError("the token is not known", known=False)
        if token.has_expired(at):
            raise AuthError("the token has expired", known=False)
        return Principal(token.name, token.role, token.tenant, token.sees)

    def lease_token(self, lease: int) -> str:
        """Return the token of a lease: good for nothing but its renewal."""
        return hmac.new(self._secret, f"lease:{lease}".encode(), hashlib.sha256).hexdigest()

    def is_lease_token(self, text: str, lease: int) -> bool:
        """Tell whether a token is that of a lease."""
        return hmac.compare_digest(text.encode(), self.lease_token(lease).encode())


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
