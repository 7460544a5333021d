"""Routes for nodes: list, drain, cordon, return, remove, restore, MIG."""

import json

from fastapi import APIRouter, Response

from fairlead.live.driver import Live
from fairlead.live.nodes.mig import MigLayouts
from fairlead.server.access.authorization import CurrentPrincipal, LiveDependency, NotFoundError
from fairlead.server.access.tokens import Principal
from fairlead.server.api import schemas as msg
from fairlead.server.api.views import device_rows, node_views

nodes = APIRouter(prefix="/v1/nodes", tags=["nodes"])


@nodes.get("")
async def list_nodes(live: LiveDependency, principal: CurrentPrincipal) -> list[msg.NodeView]:
    """List the nodes."""
    del principal
    return node_views(live)


@nodes.get("/devices", response_model=list[msg.NodeDevices])
async def list_devices(live: LiveDependency, principal: CurrentPrincipal) -> Response:
    """List the devices of each node with their jobs; tenants see the jobs that they may see."""
    # Validating a thousand devices would take most of the time.
    rows = device_rows(live, principal.can_see)
    return Response(json.dumps(rows), media_type="application/json")


@nodes.post("/{node}/drain")
async def drain(node: str, live: LiveDependency, principal: CurrentPrincipal) -> msg.NodeView:
    """Preempt all leases on a node and start nothing there until it is returned."""
    _require_manageable(live, principal, node)
    await live.nodes.drain(node, principal.actor)
    return _require_manageable(live, principal, node)


@nodes.post("/{node}/cordon")
async def cordon(node: str, live: LiveDependency, principal: CurrentPrincipal) -> msg.NodeView:
    """Start nothing new on a node; running leases continue."""
    _require_manageable(live, principal, node)
    await live.nodes.cordon(node, principal.actor)
    return _require_manageable(live, principal, node)


@nodes.post("/{node}/return")
async def return_node(
    node: str, live: LiveDependency, principal: CurrentPrincipal
) -> msg.NodeView:
    """Use a drained or cordoned node again."""
    _require_manageable(live, principal, node)
    await live.nodes.return_node(node, principal.actor)
    return _require_manageable(live, principal, node)


@nodes.post("/{node}/mig")
async def set_mig_layout(
    node: str, layout: msg.MigLayout, live: LiveDependency, principal: CurrentPrincipal
) -> list[msg.NodeView]:
    """Divide a GPU of a drained node into MIG devices; return the nodes after that."""
    _require_manageable(live, principal, node)
    layouts = MigLayouts(live.engine, live.nodes, live.queries, live.inbox)
    at = live.clock.now()
    await layouts.set_layout(node, layout.gpu, layout.profiles, principal.actor, at)
    await live.write([])  # behind the engine's reports
    return node_views(live)


@nodes.delete("/{node}")
async def remove_node(
    node: str, live: LiveDependency, principal: CurrentPrincipal
) -> msg.RemovedNode:
    """Remove a node until it is restored; refused while jobs run there, unless it was drained."""
    _require_manageable(live, principal, node)
    return msg.RemovedNode(id=node, stranded=await live.nodes.remove(node, principal.actor))


@nodes.post("/{node}/restore")
async def restore_node(
    node: str, live: LiveDependency, principal: CurrentPrincipal
) -> msg.NodeView:
    """Undo the removal of a node."""
    principal.require("admin")
    if all(known.id != node for known in live.scheduler.cluster.nodes):
        raise NotFoundError(f"no node {node!r}")
    await live.nodes.restore(node, principal.actor)
    return _require_manageable(live, principal, node)


def _require_manageable(live: Live, principal: Principal, node: str) -> msg.NodeView:
    """Return a node; raise AuthError unless the principal is an admin."""
    principal.require("admin")
    for view in node_views(live):
        if view.id == node:
            return view
    raise NotFoundError(f"no node {node!r}")
