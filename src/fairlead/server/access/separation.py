"""Separation of tenants: jobs of several tenants need an engine that keeps them apart."""

from collections.abc import Iterable

from fairlead.model.errors import ProtocolError
from fairlead.server.access.tokens import Token

FIX = (
    "use --engine local:users or slurm:users, which run a tenant's jobs as its own Unix user, or"
    " --trust-jobs if all tenants trust each other"
)


class UnseparatedTenantsError(ProtocolError):
    """Several tenants would share an engine on which a job can read all files of the server."""


def require_separation(
    tokens: Iterable[Token], *, separates_tenants: bool, new_tenant: str | None = None
) -> None:
    """Raise UnseparatedTenantsError for tokens of several tenants without separation."""
    tenants = {token.tenant for token in tokens if token.tenant is not None}
    if new_tenant is not None:
        tenants.add(new_tenant)
    if separates_tenants or len(tenants) < 2:
        return
    named = ", ".join(sorted(tenants)[:3]) + (", …" if len(tenants) > 3 else "")
    raise UnseparatedTenantsError(
        f"engine: does not separate tenants, and there are tokens of {len(tenants)} tenants"
        f" ({named}): {FIX}"
    )


def require_separation_for_logins(*, separates_tenants: bool) -> None:
    """Raise UnseparatedTenantsError for logins at a provider, whose users have any tenant."""
    if not separates_tenants:
        raise UnseparatedTenantsError(
            f"engine: does not separate tenants, and users of several can log in: {FIX}"
        )
