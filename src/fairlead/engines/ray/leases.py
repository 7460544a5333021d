"""A lease on Ray: a part for each node, and what is known of each."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairlead.engines.base import Ended, LeaseOutcome, Order
from fairlead.engines.keeper import lease_dir
from fairlead.engines.shared import multi_node as parts
from fairlead.engines.shared.multi_node import saved_steps, split
from fairlead.job import checkpoint


@dataclass(slots=True)
class Part:
    """What one node does for a lease."""

    order: Order
    begun: bool = False
    """the node may have been told to start it"""
    ended: Ended | None = None

    @property
    def node(self) -> str:
        """Where it runs."""
        return self.order.devices[0][0]


@dataclass(slots=True)
class Watched:
    """A lease whose end has not been told yet."""

    order: Order
    directory: Path
    parts: list[Part]
    ours: bool = True
    """False for one that nobody wants: its end is not told"""
    has_started: bool = False
    steps: float = -1.0
    """last reported, of jobs without the library"""
    stop_at: float | None = None
    """when it was told to stop"""
    grace_s: float | None = None
    """how long its members have from then on"""

    @property
    def lease(self) -> int:
        """Its number."""
        return self.order.lease

    def on(self, node: str) -> Part | None:
        """Return its part on a node, None if it has none or that has ended."""
        return next((p for p in self.parts if p.node == node and p.ended is None), None)

    def give_up(self, part: Part, ending: LeaseOutcome, why: str) -> None:
        """End a part of which nothing is heard: nobody can write for it any more."""
        order = self.order
        with suppress(checkpoint.FencedError):  # a later lease of the job has begun
            checkpoint.raise_fence(order.checkpoint_dir, order.lease + 1)
        part.ended = Ended(order.lease, ending, saved_steps(order), why)

    def end(self) -> Ended | None:
        """Return and write down how the lease ended; None while a part has not."""
        return parts.end(self.directory, self.order, [part.ended for part in self.parts])


def write(directory: Path, order: Order) -> Watched:
    """Write down that a lease is to start."""
    lease_dir.write_order(directory, order)
    return Watched(order, directory, [Part(one) for one in split(order)])


def read(directory: Path) -> Watched:
    """Return a lease that an earlier scheduler may have started."""
    order = lease_dir.read_order(directory)
    parts = [Part(one, begun=True) for one in split(order)]
    return Watched(order, directory, parts, has_started=True)
