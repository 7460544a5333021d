"""Devices that other users' jobs hold on the engine's nodes.

Slurm reports the number of used devices per accelerator and node; the engine knows which of them
its own jobs hold. Devices of one accelerator on one node are interchangeable, and Slurm allocates
any of them, so only the count is known: devices without a running lease represent it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fairlead.engines.base import DevicesTakenReport
from fairlead.engines.shared.nodes.registry import keeps_devices
from fairlead.engines.slurm.commands import SlurmJob, SlurmNode
from fairlead.model.cluster import Node


@dataclass(frozen=True, slots=True)
class LeasedDevices:
    """The devices of this scheduler's leases on one node, by their indices."""

    running: Collection[int] = ()
    waiting: Collection[int] = ()
    """devices that Slurm has not allocated yet"""


@dataclass
class ForeignDevices:
    """Remembers the last report on devices that others hold."""

    cpus_per_device: int
    taken: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """node → devices last reported as taken"""
    _last_counts: dict[str, tuple[Counter[str], int]] = field(default_factory=dict)
    """node → foreign devices per accelerator, and devices without cores, at the last poll"""

    def update(
        self,
        nodes: Mapping[str, SlurmNode],
        known: Iterable[Node],
        jobs: Collection[SlurmJob],
        leased: Mapping[str, LeasedDevices],
    ) -> list[DevicesTakenReport]:
        """Return the reports on nodes with changes.

        ``jobs`` are our own; ``leased`` maps nodes to the devices of our leases.
        """
        held: dict[str, Counter[str]] = {}
        for job in jobs:
            if job.state != "PENDING":
                held.setdefault(job.node, Counter()).update(job.devices)
        reports = []
        for node in known:
            listed = nodes.get(node.id)
            if listed is None or not keeps_devices(node, listed.devices):
                continue
            counts = self._foreign_counts(node, listed, held.get(node.id, Counter()))
            before, self._last_counts[node.id] = self._last_counts.get(node.id), counts
            if before not in (None, counts):
                continue  # one of our jobs may have started or ended between Slurm's two answers
            taken = self._choose(node, *counts, leased.get(node.id, LeasedDevices()))
            if taken != self.taken.get(node.id):
                self.taken[node.id] = taken
                reports.append(DevicesTakenReport(node.id, taken))
        return reports

    def _foreign_counts(
        self, node: Node, listed: SlurmNode, held: Counter[str]
    ) -> tuple[Counter[str], int]:
        """Return the foreign devices per accelerator, and how many more devices have no cores.

        Devices that the node has lost are foreign.
        """
        foreign = Counter(listed.used) - held
        foreign = Counter(node.devices) - (Counter(listed.devices) - foreign)
        free = len(node.devices) - held.total() - foreign.total()
        cores = free if listed.idle_cpus is None else listed.idle_cpus // self.cpus_per_device
        return foreign, max(free - cores, 0)

    def _choose(
        self, node: Node, foreign: Counter[str], without_cores: int, leased: LeasedDevices
    ) -> tuple[int, ...]:
        """Return the devices to report as taken; prefer those that were reported before."""
        before = self.taken.get(node.id, ())
        free = sorted(
            set(range(len(node.devices))) - set(leased.running),
            key=lambda number: (number in leased.waiting, number not in before, -number),
        )
        chosen = [
            number
            for accelerator, count in foreign.items()
            for number in [n for n in free if node.devices[n] == accelerator][:count]
        ]
        chosen += [number for number in free if number not in chosen][:without_cores]
        return tuple(sorted(chosen))
