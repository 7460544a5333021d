"""Routes for simulations: comparisons of policies beside the running server."""

import asyncio

from fastapi import APIRouter, Response

from fairlead.server.access.authorization import (
    ContextDependency,
    CurrentPrincipal,
    NotFoundError,
)
from fairlead.server.access.tokens import Principal
from fairlead.server.api.simulations.messages import NewSimulation, SimulationView
from fairlead.server.context import ServerContext
from fairlead.server.simulations.process import REPORT
from fairlead.server.simulations.request import SimulationRequest
from fairlead.server.simulations.runs import Simulation

simulations = APIRouter(prefix="/v1/simulations", tags=["simulations"])
_REPORT_HEADERS = {
    # The report has scripts and styles of its own; it gets neither cookies nor the pages' origin.
    "Content-Security-Policy": "sandbox allow-scripts",
    "Content-Disposition": 'attachment; filename="fairlead-comparison.html"',
    "X-Content-Type-Options": "nosniff",
}


@simulations.post("")
async def start_simulation(
    new: NewSimulation, server: ContextDependency, principal: CurrentPrincipal
) -> SimulationView:
    """Compare policies in a simulation, in a process of its own beside the server.

    One at a time per user and per tenant; it ends after ten minutes of CPU time, or with 3 GiB of
    memory.
    """
    principal.require("admin", "tenant")
    values = {**new.model_dump(), "policies": tuple(new.policies)}
    request, at = SimulationRequest(**values), server.live.clock.now()
    started = server.simulations.start(principal.id, request, at, tenant=principal.tenant)
    return _view(await started)


@simulations.get("")
async def list_simulations(
    server: ContextDependency, principal: CurrentPrincipal
) -> list[SimulationView]:
    """List your last simulations, the newest first; a restart of the server forgets them."""
    principal.require("admin", "tenant")
    runs = server.simulations.of(principal.id)
    for run in runs:
        await server.simulations.refresh(run)
    return [_view(run) for run in runs]


@simulations.get("/{id_}/report", response_class=Response)
async def simulation_report(
    id_: str, server: ContextDependency, principal: CurrentPrincipal
) -> Response:
    """Return the report of a simulation, one HTML page."""
    run = _find(server, principal, id_)
    try:
        body = await asyncio.to_thread((run.folder / REPORT).read_bytes)
    except OSError:
        raise NotFoundError(f"simulation {id_!r} has no report") from None
    return Response(body, media_type="text/html; charset=utf-8", headers=_REPORT_HEADERS)


@simulations.post("/{id_}/cancel")
async def cancel_simulation(
    id_: str, server: ContextDependency, principal: CurrentPrincipal
) -> SimulationView:
    """End a simulation at once."""
    run = _find(server, principal, id_)
    server.simulations.cancel(run)
    return _view(run)


def _find(server: ServerContext, principal: Principal, id_: str) -> Simulation:
    principal.require("admin", "tenant")
    for run in server.simulations.of(principal.id):
        if run.id == id_:
            return run
    raise NotFoundError(f"no simulation {id_[:100]!r}")


def _view(run: Simulation) -> SimulationView:
    result = run.result or {}
    return SimulationView(
        id=run.id,
        state=run.state,
        policies=[*run.request.policies],
        cluster=run.request.cluster,
        started_at=run.started_at,
        done=run.done,
        total=run.total,
        error=run.error,
        heads=result.get("heads", []),
        rows=result.get("rows", []),
    )
