"""Node events of a simulation: CSV with at_s, node, event and, for taken, devices."""

from collections.abc import Callable
from pathlib import Path

from fairlead.files.parsing.fields import (
    name,
    number,
    quote,
    unknown_name_error,
    whole_number,
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
    """Return the events of the cluster's nodes in a file, by time."""
    table = read_table(read_text(path), required=("at_s", "node", "event"), optional=("devices",))
    nodes = {node.id: node for node in cluster.nodes}
    events: list[NodeEvent] = []
    for line, row in zip(table.lines, table.rows, strict=True):
        cell = dict(zip(table.header, row, strict=True))
        field = "at_s"
        try:
            at = number(cell["at_s"])
            if at < 0:
                raise InputError(f"negative: {at}", fix="expected 0 or more")
            field = "node"
            node = name(cell["node"])
            if node not in nodes:
                raise unknown_name_error("node", node, tuple(nodes))
            field = "event"
            event = cell["event"].strip()
            if event not in _EVENTS:
                raise unknown_name_error("event", event, tuple(_EVENTS))
            field = "devices"
            devices = cell.get("devices", "").strip()
            if devices and event != "taken":
                raise InputError(
                    f"not allowed for {event}, which concerns the whole node",
                    fix="expected an empty cell",
                )
            events.append(_EVENTS[event](at, nodes[node], devices))
        except InputError as error:
            raise error.within(source=table.source, line=line, field=field) from None
    return tuple(sorted(events, key=lambda entry: entry.at))


def _numbers(text: str, node: Node) -> tuple[int, ...]:
    numbers = tuple(sorted(whole_number(part) for part in text.split()))
    if len(set(numbers)) < len(numbers):
        raise InputError(f"repeated: {quote(text)}", fix="expected each device once")
    if not set(numbers) <= set(range(len(node.devices))):
        raise InputError(
            f"no devices {quote(text)} on node {node.id!r}",
            fix=f"expected numbers from 0 to {len(node.devices) - 1}, separated by spaces",
        )
    return numbers
