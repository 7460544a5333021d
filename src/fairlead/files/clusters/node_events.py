"""What happens to nodes, for simulations: CSV with at_s, node, event and, for taken, devices."""

from collections.abc import Callable
from pathlib import Path

from fairlead.files.parsing.fields import (
    name,
    number,
    quoted,
    unknown,
    whole,
)
from fairlead.files.parsing.table import read_table
from fairlead.files.parsing.text import read_text
from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import InputError
from fairlead.model.events import DevicesTaken, NodeCordoned, NodeEvent, NodeLost, NodeReturned

_EVENTS: dict[str, Callable[[float, Node, str], NodeEvent]] = {
    "lost": lambda at, node, _: NodeLost(at, node.id),
    "returned": lambda at, node, _: NodeReturned(at, node.id),
    "cordoned": lambda at, node, _: NodeCordoned(at, node.id),
    "opened": lambda at, node, _: NodeCordoned(at, node.id, cordoned=False),
    "taken": lambda at, node, devices: DevicesTaken(at, node.id, _numbers(devices, node)),
}


def read_node_events(path: str | Path, cluster: Cluster) -> tuple[NodeEvent, ...]:
    """Return what a file says happens to the cluster's nodes, by time."""
    table = read_table(read_text(path), required=("at_s", "node", "event"), optional=("devices",))
    nodes = {node.id: node for node in cluster.nodes}
    found: list[NodeEvent] = []
    for line, row in zip(table.lines, table.rows, strict=True):
        cell = dict(zip(table.header, row, strict=True))
        field = "at_s"
        try:
            at = number(cell["at_s"])
            if at < 0:
                raise InputError(f"{at} is before the start", fix="give 0 or more")
            field = "node"
            node = name(cell["node"])
            if node not in nodes:
                raise unknown("node", node, tuple(nodes))
            field = "event"
            kind = cell["event"].strip()
            if kind not in _EVENTS:
                raise unknown("event", kind, tuple(_EVENTS))
            field = "devices"
            devices = cell.get("devices", "").strip()
            if devices and kind != "taken":
                raise InputError(f"{kind} is of the whole node", fix="leave the cell empty")
            found.append(_EVENTS[kind](at, nodes[node], devices))
        except InputError as error:
            raise error.within(source=table.source, line=line, field=field) from None
    return tuple(sorted(found, key=lambda event: event.at))


def _numbers(text: str, node: Node) -> tuple[int, ...]:
    numbers = tuple(sorted({whole(one) for one in text.split()}))
    if not set(numbers) <= set(range(len(node.devices))):
        raise InputError(
            f"node {node.id!r} has no devices {quoted(text)}",
            fix=f"give numbers from 0 to {len(node.devices) - 1}, separated by spaces",
        )
    return numbers
