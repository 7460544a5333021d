"""Leases: the right of one job, or one copy of it, to its devices until a time."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import NO_INTS, BoolArray, FloatArray, IntArray
from fairlead.model.value import value

SLOT_LIMIT = 1 << 20
"""A lease number is epoch × SLOT_LIMIT + slot. Epochs only grow, so the later of two leases has
the greater number, which fences writers of the earlier one. The slot, reused after the lease's
end, is the lease's row in a table."""


class Placement(NamedTuple):
    """One job (or one copy of it) on its devices: the readable form of a plan's row.

    Copy 0 is the job itself. A forked job has copies from 1 on, which make steps for it at the
    same time, each up to ``max_steps``. A copy reports the steps made under its own lease, not
    the job's total.
    """

    job: int
    copy: int
    devices: tuple[int, ...]
    max_steps: float = math.inf


@value
class Placements:
    """Jobs on devices as columns; the devices of row i are ``device[start[i]:start[i + 1]]``."""

    job: IntArray
    copy: IntArray
    start: IntArray
    device: IntArray
    max_steps: FloatArray | None = None
    """rows → maximum of steps of the copy; None: all are unlimited"""

    @classmethod
    def of(cls, placements: Sequence[Placement]) -> "Placements":
        """Return these placements as columns."""
        if not placements:
            return NO_PLACEMENTS
        sizes = np.array([0, *(len(p.devices) for p in placements)], dtype=np.int64)
        return cls(
            np.array([p.job for p in placements], dtype=np.int64),
            np.array([p.copy for p in placements], dtype=np.int64),
            np.cumsum(sizes),
            np.array([d for p in placements for d in p.devices], dtype=np.int64),
            np.array([p.max_steps for p in placements])
            if any(p.max_steps < math.inf for p in placements)
            else None,
        )

    def __len__(self) -> int:
        return len(self.job)

    def __iter__(self) -> Iterator[Placement]:
        start, device = self.start.tolist(), self.device.tolist()
        rows = zip(self.job.tolist(), self.copy.tolist(), strict=True)
        limits: list[float] | None = None if self.max_steps is None else self.max_steps.tolist()
        for i, (job, copy) in enumerate(rows):
            limit = math.inf if limits is None else limits[i]
            yield Placement(job, copy, tuple(device[start[i] : start[i + 1]]), limit)

    @property
    def size(self) -> IntArray:
        """rows → number of devices."""
        return self.start[1:] - self.start[:-1]

    @property
    def single(self) -> bool:
        """Whether every row has one device."""
        return len(self.device) == len(self.job)

    @property
    def first(self) -> IntArray:
        """rows → the first of its devices."""
        return self.device if self.single else self.device[self.start[:-1]]

    def any_device(self, property_of: BoolArray) -> BoolArray:
        """Return rows → whether one of its devices has the property."""
        if not len(self):
            return np.zeros(0, dtype=bool)
        any_of: BoolArray = np.logical_or.reduceat(property_of[self.device], self.start[:-1])
        return any_of

    def where(self, keep: BoolArray) -> "Placements":
        """Return the rows for which ``keep`` holds."""
        size = self.size
        start = np.zeros(int(np.count_nonzero(keep)) + 1, dtype=np.int64)
        np.cumsum(size[keep], out=start[1:])
        device = self.device[keep.repeat(size)]
        max_steps = None if self.max_steps is None else self.max_steps[keep]
        return Placements(self.job[keep], self.copy[keep], start, device, max_steps)


NO_PLACEMENTS = Placements(NO_INTS, NO_INTS, np.zeros(1, dtype=np.int64), NO_INTS)


def free_lanes(holder: IntArray, device: IntArray) -> tuple[IntArray, IntArray]:
    """Return lanes × devices, with more lanes if needed, and the first free lane of each device.

    A device that is asked for several times gets as many lanes. ``holder`` is -1 where free.
    """
    order = device.argsort(kind="stable")
    asked, place = device[order], np.arange(len(order))
    first = np.ones(len(order), dtype=bool)
    first[1:] = asked[1:] != asked[:-1]
    before = place - np.maximum.accumulate(np.where(first, place, 0))  # asks for the same device
    lacking = int((before + 1 - (holder[:, asked] < 0).sum(axis=0)).max(initial=0))
    if lacking > 0:
        more = np.full((lacking, holder.shape[1]), -1, dtype=np.int64)
        holder = np.vstack([holder, more])
    lane = np.empty(len(order), dtype=np.int64)
    lane[order] = ((holder[:, asked] < 0).cumsum(axis=0) <= before).sum(axis=0)
    return holder, lane
