"""What runs where: units on devices, as columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import NO_INTS, BoolArray, IntArray


class Assignment(NamedTuple):
    """One unit on its devices: the form in which people and engines read a plan."""

    jobs: tuple[int, ...]
    copy: int
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Assignments:
    """Units and the devices each of them holds.

    ``members`` is units × width: the job numbers of a unit, padded with -1. ``copy`` tells
    several copies of one job apart. The devices of unit u are
    ``device[start[u]:start[u + 1]]``.
    """

    members: IntArray
    copy: IntArray
    start: IntArray
    device: IntArray

    @classmethod
    def single(cls, job: IntArray, start: IntArray, device: IntArray) -> "Assignments":
        """Return units of one job each, first copies all."""
        return cls(job.reshape(-1, 1), np.zeros(len(job), dtype=np.int64), start, device)

    @classmethod
    def of(cls, units: Sequence[Assignment]) -> "Assignments":
        """Return these units as columns."""
        width = max((len(unit.jobs) for unit in units), default=1)
        members = np.full((len(units), width), -1, dtype=np.int64)
        for u, unit in enumerate(units):
            members[u, : len(unit.jobs)] = unit.jobs
        sizes = np.array([0, *(len(unit.devices) for unit in units)], dtype=np.int64)
        device = np.array([d for unit in units for d in unit.devices], dtype=np.int64)
        copy = np.array([unit.copy for unit in units], dtype=np.int64)
        return cls(members, copy, np.cumsum(sizes), device)

    def __len__(self) -> int:
        return len(self.copy)

    def __iter__(self) -> Iterator[Assignment]:
        start, device = self.start.tolist(), self.device.tolist()
        for u, (jobs, copy) in enumerate(
            zip(self.members.tolist(), self.copy.tolist(), strict=True)
        ):
            yield Assignment(
                tuple(j for j in jobs if j >= 0), copy, tuple(device[start[u] : start[u + 1]])
            )

    @property
    def size(self) -> IntArray:
        """units → number of devices held."""
        return self.start[1:] - self.start[:-1]

    def join(self, other: "Assignments") -> "Assignments":
        """Return these units followed by the other ones."""
        if not len(other):
            return self
        width = max(self.members.shape[1], other.members.shape[1])
        members = np.full((len(self) + len(other), width), -1, dtype=np.int64)
        members[: len(self), : self.members.shape[1]] = self.members
        members[len(self) :, : other.members.shape[1]] = other.members
        return Assignments(
            members,
            np.concatenate([self.copy, other.copy]),
            np.concatenate([self.start, self.start[-1] + other.start[1:]]),
            np.concatenate([self.device, other.device]),
        )

    def where(self, keep: BoolArray) -> "Assignments":
        """Return the units for which ``keep`` holds."""
        size = self.size
        start = np.zeros(int(np.count_nonzero(keep)) + 1, dtype=np.int64)
        np.cumsum(size[keep], out=start[1:])
        return Assignments(
            self.members[keep], self.copy[keep], start, self.device[np.repeat(keep, size)]
        )


NOTHING = Assignments(
    np.zeros((0, 1), dtype=np.int64), NO_INTS, np.zeros(1, dtype=np.int64), NO_INTS
)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Everything that should run from the plan's start until ``until``.

    The mechanism wants to decide again at ``wake_at``, or as soon as a change of the jobs or
    devices ends the round.
    """

    assignments: Assignments
    until: float
    wake_at: float
    reallocated: bool = False
    """whether a policy was asked for new shares"""
