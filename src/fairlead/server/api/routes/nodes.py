"""Nodes: what they hold, and giving them up for a while or for good."""

from fastapi import APIRouter

from fairlead.live.driver import Live
from fairlead.server.access.authorization import LiveDependency, NotFoundError, Who
from fairlead.server.access.tokens import Principal
from fairlead.server.api import schemas as msg
from fairlead.server.api.views import node_views

nodes = APIRouter(prefix="/v1/nodes", tags=["nodes"])


@nodes.get("")
async def list_nodes(live: LiveDependency, who: Who) -> list[msg.NodeView]:
    """List the nodes."""
    del who
    return node_views(live)


@nodes.post("/{node}/drain")
async def drain(node: str, live: LiveDependency, who: Who) -> msg.NodeView:
    """Have all jobs leave a node, and start none there until it is returned."""
    _require_manageable(live, who, node)
    await live.nodes.drain(node, who.name)
    return _require_manageable(live, who, node)


@nodes.post("/{node}/cordon")
async def cordon(node: str, live: LiveDependency, who: Who) -> msg.NodeView:
    """Start nothing new on a node; what runs there goes on until it ends."""
    _require_manageable(live, who, node)
    await live.nodes.cordon(node, who.name)
    return _require_manageable(live, who, node)


@nodes.post("/{node}/return")
async def put_back(node: str, live: LiveDependency, who: Who) -> msg.NodeView:
    """Use a drained or cordoned node again."""
    _require_manageable(live, who, node)
    await live.nodes.take_back(node, who.name)
    return _require_manageable(live, who, node)


@nodes.delete("/{node}")
async def remove_node(node: str, live: LiveDependency, who: Who) -> msg.RemovedNode:
    """Give a node up for good; refused while jobs run there, unless it was drained."""
    _require_manageable(live, who, node)
    return msg.RemovedNode(id=node, stranded=await live.nodes.remove(node, who.name))


def _require_manageable(live: Live, who: Principal, node: str) -> msg.NodeView:
    """Return a node that whoever asks may manage."""
    who.require("admin")
    for view in node_views(live):
        if view.id == node:
            return view
    raise NotFoundError(f"there is no node {node!r}")
