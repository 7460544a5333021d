"""Routes for code snapshots: limits, upload in parts."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from fairlead.model.job import DEFAULT_TENANT
from fairlead.server.access.authorization import (
    ContextDependency,
    CurrentPrincipal,
    NotFoundError,
)
from fairlead.server.access.tokens import Principal
from fairlead.server.api.job_messages import CodeSnapshotLimits, CodeSnapshotView
from fairlead.server.code_snapshots import SnapshotPart

code_snapshots = APIRouter(prefix="/v1/code-snapshots", tags=["jobs"])

_MAX_BYTES = 1 << 50
Digest = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
TenantName = Annotated[str | None, Query(min_length=1, max_length=128)]
Offset = Annotated[int, Query(ge=0, le=_MAX_BYTES)]
Size = Annotated[int, Query(ge=1, le=_MAX_BYTES)]


@code_snapshots.get("")
async def limits(
    server: ContextDependency, principal: CurrentPrincipal, tenant: TenantName = None
) -> CodeSnapshotLimits:
    """Show the limits of a tenant's code snapshots and the space that they use."""
    snapshots, owner = server.code_snapshots, _require_tenant(principal, tenant)
    used = await asyncio.to_thread(snapshots.used_bytes, owner)
    return CodeSnapshotLimits(
        max_bytes=snapshots.limits.max_bytes,
        quota_bytes=snapshots.limits.quota_bytes,
        used_bytes=used,
    )


@code_snapshots.get("/{snapshot_id}")
async def show(
    snapshot_id: Digest,
    server: ContextDependency,
    principal: CurrentPrincipal,
    tenant: TenantName = None,
) -> CodeSnapshotView:
    """Show a code snapshot, and keep it for an hour more."""
    owner = _require_tenant(principal, tenant)
    if not await asyncio.to_thread(server.code_snapshots.has, owner, snapshot_id):
        raise NotFoundError(f"no code snapshot {snapshot_id[:12]!r}")
    return CodeSnapshotView(id=snapshot_id, complete=True)


@code_snapshots.put("/{snapshot_id}", status_code=201)
async def upload(
    snapshot_id: Digest,
    request: Request,
    server: ContextDependency,
    principal: CurrentPrincipal,
    offset: Offset,
    size: Size,
    tenant: TenantName = None,
) -> CodeSnapshotView:
    """Upload a part of a code snapshot of ``size`` bytes, from byte ``offset`` on, in order.

    The body is the part. The last part completes the snapshot, whose SHA-256 must be its id.
    """
    owner = _require_tenant(principal, tenant)
    part = SnapshotPart(snapshot_id, offset, size, await request.body())
    complete = await asyncio.to_thread(server.code_snapshots.receive, owner, part)
    return CodeSnapshotView(id=snapshot_id, complete=complete)


def _require_tenant(principal: Principal, tenant: str | None) -> str:
    """Return the tenant of a request, which the principal must be able to act for."""
    owner = tenant or principal.tenant or DEFAULT_TENANT
    principal.require_tenant(owner)
    return owner
