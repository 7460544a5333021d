"""Which of Slurm's nodes can be used, and what there is to tell about that.

A node cannot be used when Slurm says so (down, drained, reserved for others), or when its keepers
are silent, which shows long before Slurm notices.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.engines.base import NodeDown, NodeUp
from fairlead.engines.slurm_commands import SlurmJob, SlurmNode
from fairlead.model.cluster import Cluster, Node

_SURE_AFTER_S = 60.0
"""by then a report has been written down by whoever it was for"""

_ANSWERS_S = 15.0
"""how long Slurm may be unsure of a node before it is taken for lost"""


@dataclass
class NodeWatch:
    """Remembers what was told about each node, across restarts."""

    path: Path
    reserved: bool
    down: set[str] = field(default_factory=set)
    """told to be down"""
    silent: set[str] = field(default_factory=set)
    """whose keepers do not answer though Slurm says they run"""
    _doubtful: set[str] = field(default_factory=set)
    """of which nobody knows what was told last"""
    _unsure_since: dict[str, float] = field(default_factory=dict)
    """node → since when Slurm is unsure of it"""
    _back: dict[str, float] = field(default_factory=dict)
    """node → when it was told to be back"""

    def recall(self) -> None:
        """Take up from before a restart: what was told to be down then is told again, or is back.

        Whoever was told may have forgotten; those that were not told do not hear of nodes twice.
        """
        with suppress(FileNotFoundError):
            self._doubtful = set(json.loads(self.path.read_text(encoding="utf-8")))

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
            if up == (node.id in self.down) or node.id in self._doubtful:
                reports.append(NodeUp(node.id) if up else NodeDown(node.id))
                self._note(node.id, up, now)
        self._doubtful.clear()
        self._forget(now)
        return reports

    def lose(self, name: str, now: float) -> list[NodeDown | NodeUp]:
        """Return the report that a node's keepers do not answer any more."""
        self.silent.add(name)
        if name in self.down:
            return []
        self._note(name, False, now)
        return [NodeDown(name)]

    def _is_up(self, node: SlurmNode, held: bool, heard: bool, now: float) -> bool:
        standing = node.standing(reserved=self.reserved)
        if standing == "unsure":
            # What its keepers say counts for more; else it has a while to answer.
            if heard or now - self._unsure_since.setdefault(node.name, now) < _ANSWERS_S:
                return node.name not in self.down
            return False
        self._unsure_since.pop(node.name, None)
        if standing == "down":
            return False
        if node.name in self.silent:
            # Slurm clears a job away only when the node answers, so then it is back.
            if held:
                return False
            self.silent.discard(node.name)
        return True

    def _note(self, name: str, up: bool, now: float) -> None:
        if up:
            self.down.discard(name)
            self._back[name] = now
        else:
            self.down.add(name)
            self._back.pop(name, None)
            self._write()

    def _forget(self, now: float) -> None:
        old = [name for name, at in self._back.items() if now - at > _SURE_AFTER_S]
        for name in old:
            del self._back[name]
        if old:
            self._write()

    def _write(self) -> None:
        aside = self.path.with_suffix(".tmp")
        aside.write_text(json.dumps(sorted(self.down | set(self._back))), encoding="utf-8")
        aside.replace(self.path)


def inventory(
    path: Path, nodes: Iterable[SlurmNode], racks: Mapping[str, str], chosen: Collection[str]
) -> Cluster:
    """Return the cluster, in which nodes keep their place over restarts.

    Devices are numbered through the nodes, and the scheduler's log speaks of those numbers: so
    nodes that are gone stay listed, as down, and new ones come last.
    """
    listed = {node.id: node for node in listed_before(path)}
    for node in sorted(nodes, key=lambda node: natural(node.name)):
        if node.name in chosen and node.devices and node.name not in listed:
            rack = racks.get(node.name) or _rack_feature(node.features)
            listed[node.name] = Node(node.name, node.devices, rack)
    body = [[node.id, node.devices, node.rack] for node in listed.values()]
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(body), encoding="utf-8")
    aside.replace(path)
    return Cluster(tuple(listed.values()))


def listed_before(path: Path) -> tuple[Node, ...]:
    """Return the nodes that were found last, none if there were none."""
    with suppress(FileNotFoundError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return tuple(Node(name, tuple(devices), rack) for name, devices, rack in found)
    return ()


def _rack_feature(features: Iterable[str]) -> str:
    """Return the rack that a feature such as rack-12 names, for clusters without a topology."""
    return next((f for f in features if f.startswith("rack")), "")


def natural(name: str) -> list[tuple[str, int]]:
    """Return a key that puts n2 before n10."""
    return [(text, int(digits or -1)) for text, digits in re.findall(r"(\D*)(\d*)", name)]
