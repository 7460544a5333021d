"""Routes for the rate limits of the running server."""

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from fairlead.model.submission.fields import JsonNumber
from fairlead.server.access.authorization import ContextDependency, CurrentPrincipal
from fairlead.server.access.rate_limits import RateLimiters

limits = APIRouter(prefix="/v1/limits", tags=["limits"])

_Rate = Annotated[float, Field(ge=1, le=1e12), JsonNumber()]


class LimitsChange(BaseModel):
    """Changes of the rate limits; fields left out keep their values."""

    model_config = ConfigDict(extra="forbid")

    requests_per_s: _Rate | None = None
    """requests per second and token; at least 1, so that an admin can undo the change"""
    requests_burst: Annotated[int, Field(ge=10, le=10**9), JsonNumber()] | None = None
    """requests of one token in a burst"""
    renewals_per_s: _Rate | None = None
    """renewals per second and lease"""


class LimitsView(BaseModel):
    """The rate limits in force."""

    requests_per_s: float
    requests_burst: int
    renewals_per_s: float
    set_by: Literal["start", "live"]
    """the start-up settings, or a change of the running server"""
    changed_at: float | None
    changed_by: str | None


@limits.get("")
async def show_limits(server: ContextDependency, principal: CurrentPrincipal) -> LimitsView:
    """Show the rate limits in force; for admins and viewers."""
    principal.require("admin", "viewer")
    return _view(server.rate_limiters)


@limits.put("")
async def set_limits(
    change: LimitsChange, server: ContextDependency, principal: CurrentPrincipal
) -> LimitsView:
    """Change rate limits of the running server at once; for admins."""
    principal.require("admin")
    await server.live_limits.set(change.model_dump(exclude_none=True), principal.actor)
    return _view(server.rate_limiters)


def _view(limiters: RateLimiters) -> LimitsView:
    now, change = limiters.limits, limiters.change
    return LimitsView(
        requests_per_s=now.requests_per_s,
        requests_burst=now.requests_burst,
        renewals_per_s=now.renewals_per_s,
        set_by="start" if change is None else "live",
        changed_at=None if change is None else change.at,
        changed_by=None if change is None else change.by,
    )
