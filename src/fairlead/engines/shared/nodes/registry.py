"""Persistent node registry; indices never change.

Devices are numbered through the nodes, and the scheduler's log refers to those numbers. So nodes
that are gone stay listed, as down, and new nodes come last. Devices that a machine has gained
since it was registered are a further node, such as ``n1+1``: engines deal with machines and all
their devices, the scheduler with nodes.
"""

import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path

from fairlead.atomic_file import replace_text
from fairlead.engines.base import DevicesTakenReport, LaunchOrder, NodeDown, NodeUp, Report
from fairlead.model.cluster import Cluster, Node


@dataclass(frozen=True)
class NodeRegistry:
    """All nodes ever registered, and the machines that have their devices."""

    nodes: tuple[Node, ...] = ()
    """nodes as the scheduler knows them, in the order of their device indices"""
    machine_of: Mapping[str, str] = field(default_factory=dict)
    """node → its machine, where it has another name"""

    @classmethod
    def read(cls, path: Path) -> "NodeRegistry":
        """Return the registered nodes, none before the first update."""
        with suppress(FileNotFoundError):
            rows = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                tuple(Node(name, tuple(devices), rack) for name, devices, rack, *_ in rows),
                {name: machine for name, _, _, *other in rows for machine in other},
            )
        return cls()

    def write(self, path: Path) -> None:
        """Write the registered nodes, for ``read``."""
        rows: list[list[object]] = [[node.id, node.devices, node.rack] for node in self.nodes]
        for row, node in zip(rows, self.nodes, strict=True):
            if node.id in self.machine_of:
                row.append(self.machine_of[node.id])
        replace_text(path, json.dumps(rows))

    def extended(self, machines: Iterable[Node]) -> "NodeRegistry":
        """Return a registry with new machines, and with new devices of registered ones."""
        present = {machine.id: machine for machine in machines}
        nodes, machine_of = {node.id: node for node in self.nodes}, dict(self.machine_of)
        for machine in sorted(present, key=natural_sort_key):
            gained = self.gained_devices(machine, present[machine].devices)
            if gained:
                name = _free_name(machine, nodes)
                nodes[name] = Node(name, gained, present[machine].rack)
                if name != machine:
                    machine_of[name] = machine
        return NodeRegistry(tuple(nodes.values()), machine_of)

    def gained_devices(self, machine: str, devices: Iterable[str]) -> tuple[str, ...]:
        """Return the devices of a machine that are not registered."""
        registered = Counter(
            device for node, _ in self._parts.get(machine, ()) for device in node.devices
        )
        gained = []
        for device in devices:
            if registered[device]:
                registered[device] -= 1
            else:
                gained.append(device)
        return tuple(gained)

    @property
    def cluster(self) -> Cluster:
        """The nodes as the scheduler knows them."""
        return Cluster(self.nodes)

    @cached_property
    def machines(self) -> tuple[Node, ...]:
        """Every machine with all its registered devices, those gained last at the end."""
        return tuple(
            Node(
                machine,
                tuple(device for node, _ in parts for device in node.devices),
                parts[0][0].rack,
            )
            for machine, parts in self._parts.items()
        )

    def on_machines(self, order: LaunchOrder) -> LaunchOrder:
        """Return an order for the scheduler's nodes as one for machines."""
        first = {
            node.id: (machine, number)
            for machine, parts in self._parts.items()
            for node, number in parts
        }
        located = ((*first.get(node, (node, 0)), number) for node, number in order.devices)
        devices = tuple((machine, start + number) for machine, start, number in located)
        return replace(order, devices=devices)

    def by_node(self, report: Report) -> list[Report]:
        """Return a report on a machine as reports on the scheduler's nodes; others unchanged."""
        match report:
            case NodeDown(machine) | NodeUp(machine):
                return [replace(report, node=node.id) for node, _ in self._parts.get(machine, ())]
            case DevicesTakenReport(machine, numbers):
                return [
                    replace(report, node=node.id, numbers=_numbers_on(node, start, numbers))
                    for node, start in self._parts.get(machine, ())
                ]
            case _:
                return [report]

    @cached_property
    def _parts(self) -> dict[str, list[tuple[Node, int]]]:
        """Machine → its nodes, with the number on the machine of the first device of each."""
        parts: dict[str, list[tuple[Node, int]]] = {}
        sizes: Counter[str] = Counter()
        for node in self.nodes:
            machine = self.machine_of.get(node.id, node.id)
            parts.setdefault(machine, []).append((node, sizes[machine]))
            sizes[machine] += len(node.devices)
        return parts


def update_registry(path: Path, machines: Iterable[Node]) -> NodeRegistry:
    """Register new machines, and new devices of known ones; return the whole registry."""
    registry = NodeRegistry.read(path).extended(machines)
    registry.write(path)
    return registry


def keeps_devices(machine: Node, devices: Iterable[str]) -> bool:
    """Return whether a machine still has some of its registered devices.

    Missing ones count as taken.
    """
    return bool(Counter(machine.devices) & Counter(devices))


def natural_sort_key(name: str) -> list[tuple[str, int]]:
    """Return a key that sorts n2 before n10."""
    return [(text, int(digits or -1)) for text, digits in re.findall(r"(\D*)(\d*)", name)]


def _numbers_on(node: Node, start: int, numbers: Iterable[int]) -> tuple[int, ...]:
    """Return those of a machine's device numbers that are on a node, as numbers there."""
    on_node = range(start, start + len(node.devices))
    return tuple(number - start for number in numbers if number in on_node)


def _free_name(machine: str, names: Container[str]) -> str:
    """Return the name of a machine's next node."""
    if machine not in names:
        return machine
    return next(name for n in count(1) if (name := f"{machine}+{n}") not in names)
