"""Losses and returns of nodes, for simulations: CSV with at_s, node, event."""

from pathlib import Path

from fairlead.files.fields import name, number, unknown
from fairlead.files.table import read_table
from fairlead.files.text import read_text
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.events import NodeLost, NodeReturned

_EVENTS: dict[str, type[NodeLost] | type[NodeReturned]] = {
    "lost": NodeLost,
    "returned": NodeReturned,
}


def read_node_events(path: str | Path, cluster: Cluster) -> tuple[NodeLost | NodeReturned, ...]:
    """Return the losses and returns of the cluster's nodes that a file lists, by time."""
    table = read_table(read_text(path), required=("at_s", "node", "event"))
    nodes = tuple(node.id for node in cluster.nodes)
    found: list[NodeLost | NodeReturned] = []
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
                raise unknown("node", node, nodes)
            field = "event"
            kind = cell["event"].strip()
            if kind not in _EVENTS:
                raise unknown("event", kind, tuple(_EVENTS))
            found.append(_EVENTS[kind](at, node))
        except InputError as error:
            raise error.within(source=table.source, line=line, field=field) from None
    return tuple(sorted(found, key=lambda event: event.at))
