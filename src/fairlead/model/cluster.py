"""Clusters: nodes, their devices, and the accelerators of these."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import InputError


@dataclass(frozen=True, slots=True)
class Node:
    """One machine with its devices and its rack.

    ``devices`` names the accelerator of each device: a node may mix accelerators, as the MIG
    slices of one card do.
    """

    id: str
    devices: tuple[str, ...]
    rack: str = ""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A type of device, with the memory and price of one device where known."""

    name: str
    memory_gib: float | None = None
    usd_per_hour: float | None = None


@dataclass(frozen=True)
class Cluster:
    """Nodes in a fixed order; devices are numbered through them, accelerators by first use."""

    nodes: tuple[Node, ...]
    details: Mapping[str, Accelerator] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not any(node.devices for node in self.nodes):
            raise InputError("no devices in the cluster", fix="expected at least one, e.g. v100=2")
        ids = [node.id for node in self.nodes]
        if len(set(ids)) != len(ids):
            twice = next(i for i in ids if ids.count(i) > 1)
            raise InputError(f"node {twice!r} listed twice", fix="expected unique node ids")

    @classmethod
    def of(
        cls,
        counts: Mapping[str, int],
        *,
        per_node: int | Mapping[str, int] | None = None,
        details: Mapping[str, Accelerator] | None = None,
    ) -> "Cluster":
        """Return a cluster with these numbers of devices, ``per_node`` to a node.

        Without ``per_node`` all devices of an accelerator share one node, so that no placement
        is worse than another.
        """
        nodes: list[Node] = []
        for name, count in counts.items():
            if count < 0:
                raise InputError(
                    f"negative: {name}={count}", fix="expected 0 or more", field="cluster"
                )
            size = per_node if isinstance(per_node, int) else (per_node or {}).get(name)
            size = size or max(count, 1)
            for first in range(0, count, size):
                held = min(size, count - first)
                nodes.append(Node(f"{name}-{first // size}", (name,) * held))
        return cls(tuple(nodes), details or {})

    def with_node(self, node: Node) -> "Cluster":
        """Return a cluster with one more node; existing nodes and devices keep their numbers."""
        return Cluster((*self.nodes, node), self.details)

    @cached_property
    def accelerators(self) -> tuple[str, ...]:
        """The accelerator names, in the order in which the nodes first use them."""
        return tuple(dict.fromkeys(name for node in self.nodes for name in node.devices))

    @cached_property
    def accelerator_of(self) -> IntArray:
        """devices → index of the device's accelerator."""
        index = {name: j for j, name in enumerate(self.accelerators)}
        return np.array([index[d] for node in self.nodes for d in node.devices], dtype=np.int64)

    @cached_property
    def devices_by_accelerator(self) -> IntArray:
        """All devices, those of the first accelerator first."""
        return self.accelerator_of.argsort(kind="stable")

    @cached_property
    def has_one_node_per_accelerator(self) -> bool:
        """Whether each accelerator has one node only, so that all placements are equal."""
        return len(self.nodes) == len(self.accelerators)

    @cached_property
    def node_of(self) -> IntArray:
        """devices → index of the device's node."""
        return np.repeat(np.arange(len(self.nodes)), [len(node.devices) for node in self.nodes])

    @cached_property
    def servers(self) -> tuple[IntArray, IntArray]:
        """devices → server, and servers → accelerator; its devices on one node are a server."""
        n = len(self.accelerators)
        code, server = np.unique(self.node_of * n + self.accelerator_of, return_inverse=True)
        return server, code % n

    @cached_property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """devices → its node's id, and its number on the node."""
        return tuple((node.id, i) for node in self.nodes for i in range(len(node.devices)))

    @cached_property
    def counts(self) -> IntArray:
        """accelerators → number of devices."""
        return np.bincount(self.accelerator_of, minlength=len(self.accelerators))

    @cached_property
    def usd_per_hour(self) -> FloatArray:
        """accelerators → price of one device for an hour; 0 where unknown."""
        return self._detail("usd_per_hour", 0.0)

    @cached_property
    def memory_gib(self) -> FloatArray:
        """accelerators → memory of one device; infinite where unknown."""
        return self._detail("memory_gib", np.inf)

    def _detail(self, name: str, missing: float) -> FloatArray:
        known = (getattr(self.details.get(a), name, None) for a in self.accelerators)
        return np.array([missing if value is None else value for value in known])

    def count_by_name(self) -> dict[str, int]:
        """Return accelerator → number of devices."""
        return dict(zip(self.accelerators, self.counts.tolist(), strict=True))
