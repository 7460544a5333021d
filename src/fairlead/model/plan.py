"""What runs where."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import IntArray

NOBODY = -1


class Assignment(NamedTuple):
    """One job (or one copy of it) on its devices: the form in which people read a plan."""

    job: int
    copy: int
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Everything that should run from the plan's start until ``until``.

    ``holds`` is lanes × devices: the number of the job on each device, NOBODY where there is
    none. A gang stands on several devices; jobs that stand on the same devices in different
    lanes are packed into one unit. ``copy``, of the same shape, tells copies of a job apart;
    None means that all are first copies. The mechanism wants to decide again at ``wake_at``.
    """

    holds: IntArray
    until: float
    wake_at: float
    reallocated: bool = False
    """whether a policy was asked for new shares"""
    copy: IntArray | None = None

    def assignments(self) -> Iterator[Assignment]:
        """Yield each job or copy that runs, by job number, with its devices ascending."""
        lane, device = np.nonzero(self.holds != NOBODY)
        held: dict[tuple[int, int], list[int]] = {}
        for where in zip(lane.tolist(), device.tolist(), strict=True):
            copy = 0 if self.copy is None else int(self.copy[where])
            held.setdefault((int(self.holds[where]), copy), []).append(where[1])
        for (job, copy), devices in sorted(held.items()):
            yield Assignment(job, copy, tuple(sorted(devices)))


def nobody(n_devices: int) -> IntArray:
    """Return holdings of one lane in which every device is idle."""
    return np.full((1, n_devices), NOBODY, dtype=np.int64)
