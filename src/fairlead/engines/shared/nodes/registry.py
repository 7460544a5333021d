"""Persistent node registry; indices never change.

Devices are numbered through the nodes, and the scheduler's log refers to those numbers. So nodes
that are gone stay listed, as down, and new nodes come last.
"""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fairlead.atomic_file import replace_text
from fairlead.model.cluster import Cluster, Node


def read_registry(path: Path) -> tuple[Node, ...]:
    """Return the registered nodes, none before the first update."""
    with suppress(FileNotFoundError):
        rows = json.loads(path.read_text(encoding="utf-8"))
        return tuple(Node(name, tuple(devices), rack) for name, devices, rack in rows)
    return ()


def update_registry(path: Path, nodes: Iterable[Node]) -> Cluster:
    """Register new nodes; return all nodes, each at its index."""
    listed = {node.id: node for node in read_registry(path)}
    for node in sorted(nodes, key=lambda node: natural_sort_key(node.id)):
        listed.setdefault(node.id, node)
    rows = [[node.id, node.devices, node.rack] for node in listed.values()]
    replace_text(path, json.dumps(rows))
    return Cluster(tuple(listed.values()))


def natural_sort_key(name: str) -> list[tuple[str, int]]:
    """Return a key that sorts n2 before n10."""
    return [(text, int(digits or -1)) for text, digits in re.findall(r"(\D*)(\d*)", name)]
