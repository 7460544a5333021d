"""Login by OpenID Connect: signed tokens of a provider, and the roles that their claims give."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairlead.model.errors import InputError
from fairlead.server.access.identity_provider import ProviderKeys
from fairlead.server.access.tokens import AuthError, Principal

if TYPE_CHECKING:
    from jwt import PyJWK

_ALGORITHMS = ["RS256", "ES256"]
"""signatures with a public key; others, and none, are refused"""
_LEEWAY_S = 30
_MAX_TOKEN_BYTES = 16 << 10
_MAX_SUBJECT = 200
_MAX_NAME = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcConfig:
    """Provider, and the claims that give its users a role and a tenant."""

    issuer: str
    client_id: str
    audience: str
    tenant_claim: str = "tenant"
    groups_claim: str = "groups"
    admin_group: str | None = None
    viewer_group: str | None = None


def require_library() -> None:
    """Raise InputError if the optional dependency is missing."""
    try:
        import jwt.algorithms  # noqa: PLC0415

        if not jwt.algorithms.has_crypto:
            raise ImportError("cryptography")
    except ImportError:
        fix = "install it with `pip install 'fairlead[oidc]'`"
        raise InputError("needs PyJWT with cryptography", fix=fix, field="oidc_issuer") from None


class OidcLogin:
    """Checks tokens of one provider."""

    def __init__(self, config: OidcConfig, keys: ProviderKeys | None = None) -> None:
        self.config = config
        self._keys = keys or ProviderKeys(config.issuer)

    async def authenticate(self, text: str) -> Principal:
        """Return the owner of a signed token; AuthError if it is not valid here."""
        return principal_of(await self._verified_claims(text), self.config)

    async def _verified_claims(self, text: str) -> Mapping[str, Any]:
        import jwt  # noqa: PLC0415  # optional dependency

        if len(text) > _MAX_TOKEN_BYTES:
            raise AuthError(f"token: above {_MAX_TOKEN_BYTES} bytes", known=False)
        try:
            header = jwt.get_unverified_header(text)
            algorithm, key_id = header.get("alg"), header.get("kid")
            if algorithm not in _ALGORITHMS:
                raise AuthError(f"token: expected a signature by {_ALGORITHMS}", known=False)
            if key_id is not None and not (isinstance(key_id, str) and len(key_id) <= 200):
                raise AuthError("token: invalid key id", known=False)
            key = await self._keys.key(key_id)
            if key is None:
                raise AuthError("token: signed with an unknown key", known=False)
            try:
                return self._decode(text, key)
            except jwt.InvalidSignatureError:
                newer = await self._keys.newer_key(key_id)
                if newer is None or newer is key:
                    raise
                return self._decode(text, newer)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise AuthError(f"token: {error}", known=False) from None

    def _decode(self, text: str, key: "PyJWK") -> Mapping[str, Any]:
        import jwt  # noqa: PLC0415  # optional dependency

        claims: Mapping[str, Any] = jwt.decode(
            text,
            key.key,
            algorithms=["RS256" if key.key_type == "RSA" else "ES256"],
            audience=self.config.audience,
            issuer=self.config.issuer,
            leeway=_LEEWAY_S,
            options={"require": ["iss", "aud", "exp", "iat", "sub"]},
        )
        return claims


def principal_of(claims: Mapping[str, Any], config: OidcConfig) -> Principal:
    """Return the principal with the role that the claims give; AuthError without one."""
    subject = claims["sub"]
    if not _is_name(subject, _MAX_SUBJECT):
        problem = f"token: sub: expected 1 to {_MAX_SUBJECT} printable characters"
        raise AuthError(problem, known=False)
    named = (claims.get(claim) for claim in ("preferred_username", "email"))
    name = next((str(each) for each in named if _is_name(each)), subject[:_MAX_NAME])
    actor_id = f"oidc:{subject}"
    groups = claims.get(config.groups_claim)
    groups = groups if isinstance(groups, list) else []
    if config.admin_group is not None and config.admin_group in groups:
        return Principal(name, "admin", id=actor_id)
    tenant = claims.get(config.tenant_claim)
    if _is_name(tenant):
        return Principal(name, "tenant", tenant, id=actor_id)
    if config.viewer_group is not None and config.viewer_group in groups:
        return Principal(name, "viewer", id=actor_id)
    problem = f"{config.tenant_claim}: missing in the token of {name!r}"
    raise AuthError(f"{problem}: expected a tenant, or a group with a role", known=True)


def _is_name(value: object, length: int = _MAX_NAME) -> bool:
    return isinstance(value, str) and 0 < len(value) <= length and value.isprintable()


def looks_signed(text: str) -> bool:
    """Return whether a bearer token has the form of a JSON web token."""
    return text.count(".") == 2 and not text.startswith("fl_")
