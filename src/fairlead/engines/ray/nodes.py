"""Ray's nodes as Fairlead's: which accelerators they have, what others hold, which are usable."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.engines.base import DevicesTaken
from fairlead.engines.shared.nodes.registry import register
from fairlead.engines.shared.nodes.status import NodeStatus
from fairlead.model.cluster import Cluster, Node

GPU = "GPU"
_TYPE = "accelerator_type:"
_ACCELERATOR_NAME = re.compile(r"[A-Za-z]{1,4}-?\d{1,4}[A-Za-z]{0,4}(-[\w.]+)?")
"""what custom resources that are accelerators are called: V100, K80, A10G, MI300X, H200-3g.71gb"""


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node as Ray sees it."""

    id: str
    """Ray's number of it, another one each time its Ray is started"""
    name: str
    address: str
    alive: bool
    resources: Mapping[str, str]
    """accelerator → the resource that stands for it"""
    devices: tuple[str, ...]
    """the accelerator of each device"""
    free: Mapping[str, int]
    """accelerator → devices that nobody holds"""
    rack: str

    @classmethod
    def read(cls, found: Mapping[str, Any], accelerators: Collection[str] = ()) -> "RayNode":
        """Return a node from what Ray says; ``accelerators`` are resources that count as such."""
        totals, free = found["resources"], found["free"]
        resources = _accelerators(totals, accelerators)
        return cls(
            id=found["id"],
            name=found["name"],
            address=found["address"],
            alive=found["alive"],
            resources=resources,
            devices=tuple(
                kind for kind, resource in resources.items() for _ in range(int(totals[resource]))
            ),
            free={kind: int(free.get(resource, 0)) for kind, resource in resources.items()},
            rack=found["labels"].get("rack", ""),
        )

    def bundle(self, kinds: Sequence[str], cpus_per_device: float) -> dict[str, float]:
        """Return what a placement group asks for to hold devices of these kinds here."""
        asked: dict[str, float] = {f"node:{self.address}": 0.001}  # here and nowhere else
        for kind, count in Counter(kinds).items():
            asked[self.resources[kind]] = float(count)
        if cpus_per_device:
            asked["CPU"] = cpus_per_device * len(kinds)
        return asked


def _accelerators(totals: Mapping[str, float], chosen: Collection[str]) -> dict[str, str]:
    """accelerator → resource, of a node with these resources."""
    found: dict[str, str] = {}
    if totals.get(GPU, 0) >= 1:
        types = [name.removeprefix(_TYPE) for name in totals if name.startswith(_TYPE)]
        found[types[0].lower() if types else "gpu"] = GPU
    for name in sorted(totals):
        counts = name in chosen if chosen else _ACCELERATOR_NAME.fullmatch(name) is not None
        if counts and name != GPU and totals[name] >= 1:
            found.setdefault(name.lower(), name)
    return found


def alive(nodes: Iterable[RayNode]) -> dict[str, RayNode]:
    """name → the node that lives under it, or one that lived."""
    found: dict[str, RayNode] = {}
    for node in nodes:
        if node.alive or node.name not in found:
            found[node.name] = node
    return found


def inventory(path: Path, nodes: Iterable[RayNode]) -> Cluster:
    """Return the cluster, in which nodes keep their place over restarts; see ``register``."""
    usable = (node for node in nodes if node.alive and node.devices)
    return register(path, (Node(node.name, node.devices, node.rack) for node in usable))


def taken(node: Node, found: RayNode, held: Collection[int], ours: Counter[str]) -> list[int]:
    """Return the numbers of devices that others hold.

    Ray counts devices of a kind and does not say which: those that we do not hold ourselves, the
    last ones first, stand for them. ``held`` are the devices of our leases, ``ours`` is how many
    of each kind Ray holds for us, which may be more for a moment.
    """
    numbers: list[int] = []
    for kind, total in Counter(node.devices).items():
        foreign = total - found.free.get(kind, 0) - ours[kind]
        idle = [i for i, one in enumerate(node.devices) if one == kind and i not in held]
        numbers += idle[max(len(idle) - max(foreign, 0), 0) :]
    return sorted(numbers)


@dataclass
class Told(NodeStatus):
    """Remembers what was told about each node."""

    taken: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _maybe: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """node → what others seemed to hold when we looked last"""

    def devices(self, name: str, numbers: Sequence[int]) -> list[DevicesTaken]:
        """Return what there is to tell of devices that others hold.

        Only what is seen twice in a row: a lease may begin or end between two of Ray's answers.
        """
        now, before = tuple(numbers), self._maybe.get(name)
        self._maybe[name] = now
        if now != before or now == self.taken.get(name):
            return []
        self.taken[name] = now
        return [DevicesTaken(name, now)]
