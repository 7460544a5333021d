"""Ray's nodes: their accelerators, the devices that others hold, and their status."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.engines.base import DevicesTakenReport
from fairlead.engines.shared.nodes.registry import NodeRegistry, update_registry
from fairlead.engines.shared.nodes.status import NodeStatus
from fairlead.model.cluster import Node

GPU = "GPU"
_TYPE = "accelerator_type:"
_ACCELERATOR_NAME = re.compile(r"[A-Za-z]{1,4}-?\d{1,4}[A-Za-z]{0,4}(-[\w.]+)?")
"""names of custom resources that are accelerators: V100, K80, A10G, MI300X, H200-3g.71gb"""


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node as Ray lists it."""

    id: str
    """Ray's ID, a new one for each start of the raylet"""
    name: str
    address: str
    alive: bool
    resources: Mapping[str, str]
    """accelerator → name of its Ray resource"""
    devices: tuple[str, ...]
    """accelerator of each device"""
    free: Mapping[str, int]
    """accelerator → number of free devices"""
    rack: str

    @classmethod
    def read(cls, listed: Mapping[str, Any], accelerators: Collection[str] = ()) -> "RayNode":
        """Parse one of Ray's nodes; ``accelerators`` names the custom resources to use."""
        totals, free = listed["resources"], listed["free"]
        resources = _accelerators(totals, accelerators)
        return cls(
            id=listed["id"],
            name=listed["name"],
            address=listed["address"],
            alive=listed["alive"],
            resources=resources,
            devices=tuple(
                accelerator
                for accelerator, resource in resources.items()
                for _ in range(int(totals[resource]))
            ),
            free={
                accelerator: int(free.get(resource, 0))
                for accelerator, resource in resources.items()
            },
            rack=listed["labels"].get("rack", ""),
        )

    def bundle(self, accelerators: Sequence[str], cpus_per_device: float) -> dict[str, float]:
        """Return the placement-group bundle that reserves these accelerators on this node."""
        bundle: dict[str, float] = {f"node:{self.address}": 0.001}  # pins it to this node
        for accelerator, count in Counter(accelerators).items():
            bundle[self.resources[accelerator]] = float(count)
        if cpus_per_device:
            bundle["CPU"] = cpus_per_device * len(accelerators)
        return bundle


def _accelerators(totals: Mapping[str, float], chosen: Collection[str]) -> dict[str, str]:
    """Return accelerator → resource for a node with these resources."""
    resources: dict[str, str] = {}
    if totals.get(GPU, 0) >= 1:
        types = [name.removeprefix(_TYPE) for name in totals if name.startswith(_TYPE)]
        resources[types[0].lower() if types else "gpu"] = GPU
    for name in sorted(totals):
        counts = name in chosen if chosen else _ACCELERATOR_NAME.fullmatch(name) is not None
        if counts and name != GPU and totals[name] >= 1:
            resources.setdefault(name.lower(), name)
    return resources


def latest_by_name(nodes: Iterable[RayNode]) -> dict[str, RayNode]:
    """Return name → its living node, or a dead one if none lives."""
    latest: dict[str, RayNode] = {}
    for node in nodes:
        if node.alive or node.name not in latest:
            latest[node.name] = node
    return latest


def inventory(path: Path, nodes: Iterable[RayNode]) -> NodeRegistry:
    """Add living nodes with devices to the node registry, and return it."""
    usable = (node for node in nodes if node.alive and node.devices)
    return update_registry(path, (Node(node.name, node.devices, node.rack) for node in usable))


def taken_devices(
    node: Node, listed: RayNode, leased: Collection[int], reserved: Counter[str]
) -> list[int]:
    """Return the indices of the devices that others hold.

    Ray counts devices per accelerator but does not identify them, so the last devices outside our
    leases represent those of others. ``leased`` are the devices of our leases; ``reserved`` counts
    the devices that Ray holds for us, which may briefly be more.
    """
    numbers: list[int] = []
    for accelerator, total in Counter(node.devices).items():
        foreign = total - listed.free.get(accelerator, 0) - reserved[accelerator]
        idle = [
            index
            for index, name in enumerate(node.devices)
            if name == accelerator and index not in leased
        ]
        numbers += idle[max(len(idle) - max(foreign, 0), 0) :]
    return sorted(numbers)


@dataclass
class RayNodeStatus(NodeStatus):
    """Remembers the last report about each node."""

    taken: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _unconfirmed_taken: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """node → devices that others held at the last poll"""

    def devices(self, name: str, numbers: Sequence[int]) -> list[DevicesTakenReport]:
        """Return a report if the devices that others hold have changed.

        A change counts only when two polls in a row agree, because a lease may start or end
        between two of Ray's answers.
        """
        now, before = tuple(numbers), self._unconfirmed_taken.get(name)
        self._unconfirmed_taken[name] = now
        if now != before or now == self.taken.get(name):
            return []
        self.taken[name] = now
        return [DevicesTakenReport(name, now)]
