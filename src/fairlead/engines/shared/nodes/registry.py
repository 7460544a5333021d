"""The nodes that there ever were, in an order that lasts.

Devices are numbered through the nodes, and the scheduler's log speaks of those numbers: so nodes
that are gone stay listed, as down, and new ones come last.
"""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fairlead.model.cluster import Cluster, Node


def registered(path: Path) -> tuple[Node, ...]:
    """Return the nodes that were found last, none if there were none."""
    with suppress(FileNotFoundError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return tuple(Node(name, tuple(devices), rack) for name, devices, rack in found)
    return ()


def register(path: Path, nodes: Iterable[Node]) -> Cluster:
    """Write down which nodes there are; return all, each in the place that it has had before."""
    listed = {node.id: node for node in registered(path)}
    for node in sorted(nodes, key=lambda node: natural_sort_key(node.id)):
        listed.setdefault(node.id, node)
    body = [[node.id, node.devices, node.rack] for node in listed.values()]
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(body), encoding="utf-8")
    aside.replace(path)
    return Cluster(tuple(listed.values()))


def natural_sort_key(name: str) -> list[tuple[str, int]]:
    """Return a key that puts n2 before n10."""
    return [(text, int(digits or -1)) for text, digits in re.findall(r"(\D*)(\d*)", name)]
