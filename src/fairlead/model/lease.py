"""Leases: the right of one job, or one copy of it, to its devices until a time."""

from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.model.arrays import IntArray
from fairlead.model.plan import Assignment

SLOTS = 1 << 20
"""A lease number is epoch × SLOTS + slot. Epochs only grow, so of two leases the later one has
the greater number, which fences writers of the earlier one; the slot, used again after the
lease's end, finds its row in a table without a search."""


@dataclass(frozen=True, slots=True, eq=False)
class Leases:
    """Leases as columns; the devices of row i are ``device[start[i]:start[i + 1]]``."""

    lease: IntArray
    job: IntArray
    copy: IntArray
    start: IntArray
    device: IntArray

    def __len__(self) -> int:
        return len(self.lease)

    def __iter__(self) -> Iterator[tuple[int, Assignment]]:
        start, device = self.start.tolist(), self.device.tolist()
        rows = zip(self.lease.tolist(), self.job.tolist(), self.copy.tolist(), strict=True)
        for i, (lease, job, copy) in enumerate(rows):
            yield lease, Assignment(job, copy, tuple(device[start[i] : start[i + 1]]))
