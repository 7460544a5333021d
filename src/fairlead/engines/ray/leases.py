"""Leases on Ray: one part per node, with the last known state of each."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.engines.shared import multi_node
from fairlead.engines.shared.multi_node import saved_steps, split_by_node
from fairlead.job import checkpoint
from fairlead.model.lease_outcome import LeaseOutcome
from fairlead.untrusted_file import UnusableFileError

_MAX_FENCE_TRIES = 5
"""checks of a lost node after which a lease ends although its job holds the lock"""


@dataclass(slots=True)
class RayLeasePart:
    """The part of a lease on one node."""

    order: LaunchOrder
    begun: bool = False
    """the node agent may have been asked to start it"""
    ended: Ended | None = None

    @property
    def node(self) -> str:
        """Name of its node."""
        return self.order.devices[0][0]


@dataclass(slots=True)
class TrackedRayLease:
    """A lease whose end has not been reported."""

    order: LaunchOrder
    directory: Path
    parts: list[RayLeasePart]
    wanted: bool = True
    """False for an orphan, whose end is not reported"""
    has_started: bool = False
    steps: float = -1.0
    """last reported steps, for jobs without the job library"""
    stop_at: float | None = None
    """time of the stop request, by the monotonic clock"""
    grace_s: float | None = None
    """seconds that members have from the stop request on"""
    fence_tries: int = 0
    """times that the job held the lock when its writers were to be fenced"""

    @property
    def lease(self) -> int:
        """Number of the lease."""
        return self.order.lease

    def part_on(self, node: str) -> RayLeasePart | None:
        """Return the running part on a node, None if there is none."""
        return next((p for p in self.parts if p.node == node and p.ended is None), None)

    def declare_lost(
        self, part: RayLeasePart, ending: LeaseOutcome, why: str, *, again: bool = False
    ) -> None:
        """End a part that does not answer, and fence its writers.

        Raises LockHeldError while the job holds the lock of its checkpoints, the first few times
        if the caller tries ``again``.
        """
        order = self.order
        # A later lease of the job has started, or the job itself has damaged or locked its files:
        # then the keeper of its next lease raises the fence.
        with suppress(checkpoint.FencedError, UnusableFileError):
            try:
                checkpoint.raise_fence(order.checkpoint_dir, order.lease + 1, wait_s=0.0)
            except checkpoint.LockHeldError:
                self.fence_tries += 1
                if again and self.fence_tries < _MAX_FENCE_TRIES:
                    raise
        part.ended = Ended(order.lease, ending, saved_steps(order), why)

    def end(self) -> Ended | None:
        """Persist and return the end of the lease; None while a part is still running."""
        return multi_node.conclude(self.directory, self.order, [part.ended for part in self.parts])


def write(directory: Path, order: LaunchOrder) -> TrackedRayLease:
    """Persist the order of a new lease; return the lease."""
    lease_dir.write_order(directory, order)
    return TrackedRayLease(order, directory, [RayLeasePart(part) for part in split_by_node(order)])


def read(directory: Path) -> TrackedRayLease:
    """Return a lease that an earlier scheduler may have started."""
    order = lease_dir.read_order(directory)
    parts = [RayLeasePart(part, begun=True) for part in split_by_node(order)]
    return TrackedRayLease(order, directory, parts, has_started=True)
