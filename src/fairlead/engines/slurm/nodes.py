"""Which of Slurm's nodes can be used, and what there is to tell about that.

A node cannot be used when Slurm says so (down, drained, reserved for others), or when its keepers
are silent, which shows long before Slurm notices.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.engines.base import NodeDown, NodeUp
from fairlead.engines.shared.nodes.registry import register
from fairlead.engines.shared.nodes.status import NodeStatus
from fairlead.engines.slurm.commands import SlurmJob, SlurmNode
from fairlead.model.cluster import Cluster, Node

_ANSWERS_S = 15.0
"""how long Slurm may be unsure of a node before it is taken for lost"""


@dataclass
class SlurmNodeStatus(NodeStatus):
    """Remembers what was told about each node, and why it cannot be used."""

    reserved: bool = False
    silent: set[str] = field(default_factory=set)
    """whose keepers do not answer though Slurm says they run"""
    _uncertain_since: dict[str, float] = field(default_factory=dict)
    """node → since when Slurm is unsure of it"""

    def judge(
        self,
        nodes: Mapping[str, SlurmNode],
        known: Iterable[Node],
        jobs: Collection[SlurmJob],
        leased: Mapping[str, bool],
        now: float,
    ) -> list[NodeDown | NodeUp]:
        """Return what is new.

        ``jobs`` are ours; ``leased`` says of nodes with leases of ours whether these are heard of.
        """
        held = {job.node for job in jobs if job.state != "PENDING"}
        reports: list[NodeDown | NodeUp] = []
        for node in known:
            found = nodes.get(node.id)
            if found is None or found.devices != node.devices:
                up = False
            else:
                up = self._is_up(found, node.id in held, leased.get(node.id, False), now)
            reports += self.standing(node.id, up, now)
        return reports

    def lose(self, name: str, now: float) -> list[NodeDown | NodeUp]:
        """Return the report that a node's keepers do not answer any more."""
        self.silent.add(name)
        return self.standing(name, False, now)

    def _is_up(self, node: SlurmNode, held: bool, heard: bool, now: float) -> bool:
        standing = node.standing(reserved=self.reserved)
        if standing == "unsure":
            # What its keepers say counts for more; else it has a while to answer.
            if heard or now - self._uncertain_since.setdefault(node.name, now) < _ANSWERS_S:
                return node.name not in self.down
            return False
        self._uncertain_since.pop(node.name, None)
        if standing == "down":
            return False
        if node.name in self.silent:
            # Slurm clears a job away only when the node answers, so then it is back.
            if held:
                return False
            self.silent.discard(node.name)
        return True


def inventory(
    path: Path, nodes: Iterable[SlurmNode], racks: Mapping[str, str], chosen: Collection[str]
) -> Cluster:
    """Return the cluster, in which nodes keep their place over restarts; see ``register``."""
    usable = (node for node in nodes if node.name in chosen and node.devices)
    return register(
        path,
        (
            Node(node.name, node.devices, racks.get(node.name) or _rack_feature(node.features))
            for node in usable
        ),
    )


def _rack_feature(features: Iterable[str]) -> str:
    """Return the rack that a feature such as rack-12 names, for clusters without a topology."""
    return next((f for f in features if f.startswith("rack")), "")
