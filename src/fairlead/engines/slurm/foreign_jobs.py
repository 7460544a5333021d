"""Which devices of a node others hold: jobs in the same partition that are not ours.

Slurm says how many devices of each accelerator are in use on a node, and we know which of these
our own jobs hold. Devices of one accelerator on one node are alike, and Slurm gives out whichever
it likes; so it is a count that is theirs, and any devices on which nothing of ours runs stand for
it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fairlead.engines.base import DevicesTaken
from fairlead.engines.slurm.commands import SlurmJob, SlurmNode
from fairlead.model.cluster import Node


@dataclass(frozen=True, slots=True)
class Ours:
    """The devices of a node that leases of ours are for, by their numbers on it."""

    running: Collection[int] = ()
    waiting: Collection[int] = ()
    """Slurm has not given them to us yet"""


@dataclass
class Others:
    """Remembers which devices were told to be theirs."""

    cpus_per_device: int
    taken: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """node → devices that were told"""
    _seen: dict[str, tuple[Counter[str], int]] = field(default_factory=dict)
    """node → accelerator → how many were theirs when we last looked, and how many had no cores"""

    def look(
        self,
        nodes: Mapping[str, SlurmNode],
        known: Iterable[Node],
        jobs: Collection[SlurmJob],
        ours: Mapping[str, Ours],
    ) -> list[DevicesTaken]:
        """Return what is new; ``jobs`` are our own, ``ours`` says node → devices of leases."""
        held: dict[str, Counter[str]] = {}
        for job in jobs:
            if job.state != "PENDING":
                held.setdefault(job.node, Counter()).update(job.devices)
        reports = []
        for node in known:
            found = nodes.get(node.id)
            if found is None or found.devices != node.devices:
                continue
            theirs = self._foreign_counts(found, held.get(node.id, Counter()))
            before, self._seen[node.id] = self._seen.get(node.id), theirs
            if before not in (None, theirs):
                continue  # a job of ours may have come or gone between Slurm's two answers
            taken = self._choose(node, *theirs, ours.get(node.id, Ours()))
            if taken != self.taken.get(node.id):
                self.taken[node.id] = taken
                reports.append(DevicesTaken(node.id, taken))
        return reports

    def _foreign_counts(self, node: SlurmNode, ours: Counter[str]) -> tuple[Counter[str], int]:
        """Return how many devices are theirs, and how many more have no cores to go with them."""
        theirs = Counter(node.used) - ours
        free = len(node.devices) - ours.total() - theirs.total()
        cores = free if node.idle_cpus is None else node.idle_cpus // self.cpus_per_device
        return theirs, max(free - cores, 0)

    def _choose(
        self, node: Node, theirs: Counter[str], useless: int, ours: Ours
    ) -> tuple[int, ...]:
        """Return the devices that stand for theirs, of those told before as many as possible."""
        before = self.taken.get(node.id, ())
        free = sorted(
            set(range(len(node.devices))) - set(ours.running),
            key=lambda number: (number in ours.waiting, number not in before, -number),
        )
        chosen = [
            number
            for kind, count in theirs.items()
            for number in [one for one in free if node.devices[one] == kind][:count]
        ]
        chosen += [number for number in free if number not in chosen][:useless]
        return tuple(sorted(chosen))
