"""Routes for the past of devices and tenants."""

import asyncio
import math
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic_core import to_json

from fairlead.live.driver import Live
from fairlead.live.timeline.hours import HOUR_S, KEPT_HOURS
from fairlead.model.errors import InputError
from fairlead.server.access.authorization import ContextDependency, CurrentPrincipal
from fairlead.server.api.timeline.messages import SharesHistory, Timeline
from fairlead.server.api.timeline.views import shares_view, timeline_view

timeline = APIRouter(prefix="/v1", tags=["history"])

_MAX_S = KEPT_HOURS * HOUR_S
_MIN_S = 1.0
_MAX_CELLS = 1_000_000
_HALF_LIVES = 6
"""half-lives before the window that averages take into account"""

Begin = Annotated[float | None, Query(alias="from", ge=0.0, le=1e11)]
End = Annotated[float | None, Query(alias="to", ge=0.0, le=1e11)]


@timeline.get("/timeline", response_model=Timeline)
async def show_timeline(
    server: ContextDependency,
    principal: CurrentPrincipal,
    begin: Begin = None,
    end: End = None,
    columns: Annotated[int, Query(ge=1, le=2000)] = 600,
    offset: Annotated[int, Query(ge=0, le=1 << 40)] = 0,
    limit: Annotated[int, Query(ge=1, le=5000)] = 1000,
) -> Response:
    """Show which job held each device from ``from`` to ``to`` (seconds since 1970), in columns.

    A column names the job that held the device longest in it. Without times: the last hour. Lists
    ``limit`` devices after ``offset``. Tenants see the jobs that they may see; other jobs have no
    name. The server keeps 35 days.
    """
    live = server.live
    begin, end = _window(live, begin, end)
    if columns * limit > _MAX_CELLS:
        problem = f"{columns} columns of {limit} devices are too many cells"
        fix = f"expected at most {_MAX_CELLS // limit} columns, or fewer devices with limit"
        raise InputError(problem, fix=fix, field="columns")
    async with server.drawing:
        hours = await live.timeline.hours(begin, end)
        cluster = live.scheduler.cluster
        total = len(cluster.accelerator_of)
        devices = range(min(offset, total), min(offset + limit, total))
        return await _respond(
            lambda: timeline_view(
                hours,
                cluster,
                begin=begin,
                end=end,
                columns=columns,
                devices=devices,
                now=live.clock.now(),
                can_see=principal.can_see,
                kept=live.specs,
            )
        )


@timeline.get("/shares/history", response_model=SharesHistory)
async def shares_history(
    server: ContextDependency,
    principal: CurrentPrincipal,
    begin: Begin = None,
    end: End = None,
    columns: Annotated[int, Query(ge=1, le=1000)] = 200,
    half_life_s: Annotated[float, Query(ge=1.0, le=_MAX_S)] = HOUR_S,
) -> Response:
    """Show the entitled and received shares of tenants from ``from`` to ``to``, in columns.

    Each column has the mean of its time, and at its end an average in which older shares count
    half with every half-life. The server samples shares twice a minute and keeps 35 days.
    """
    live, now = server.live, end is None
    begin, end = _window(live, begin, end)
    earliest = max(begin - _HALF_LIVES * half_life_s, end - _MAX_S)
    async with server.drawing:
        hours = await live.timeline.hours(earliest, end)
        end = live.clock.now() if now else end  # the last sample is of the present
        return await _respond(
            lambda: shares_view(
                hours,
                begin=begin,
                end=end,
                columns=columns,
                half_life_s=half_life_s,
                can_see=principal.can_see,
            )
        )


def _window(live: Live, begin: float | None, end: float | None) -> tuple[float, float]:
    """Return the begin and end of a window, by default the last hour."""
    end = live.clock.now() if end is None else end
    begin = end - HOUR_S if begin is None else begin
    if not (math.isfinite(begin) and math.isfinite(end) and end - begin >= _MIN_S):
        fix = "expected a time at least a second before `to`"
        problem = f"{begin:.15g} is too late for a window until {end:.15g}"
        raise InputError(problem, fix=fix, field="from")
    if end - begin > _MAX_S:
        problem = f"{(end - begin) / 86400.0:.1f} days are too long"
        raise InputError(problem, fix="expected at most 35 days", field="from")
    return begin, end


async def _respond(view: Callable[[], dict[str, object]]) -> Response:
    """Return a view as JSON, computed beside the event loop and without a second validation."""
    body = await asyncio.to_thread(lambda: to_json(view()))
    return Response(body, media_type="application/json")
