"""Data of each class for water-filling, derived once from its gains and size."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.solve.classes import fractions, row_hash

# The tie rule's perturbation, relative to a share's device time: far above HiGHS's dual
# tolerance, so that it decides every tie, and too small to matter where device times differ.
_TIE = 1e-5
_ORDER = 64.0  # so many equal classes double the perturbation


@dataclass(frozen=True, slots=True)
class ClassTable:
    """Classes × resources, with each class's cap: its greatest gain on an open resource."""

    gain: FloatArray  # classes × resources; 0 on resources without capacity
    size: FloatArray  # classes
    cost: FloatArray  # classes × resources: device time of a share, perturbed to break ties
    cap: FloatArray  # classes
    best: FloatArray  # classes × resources: the shares of a member at its cap by the tie rule
    alone: BoolArray  # classes: only one resource gives the cap
    is_open: BoolArray  # resources: counted in caps
    least_cap: float  # no cap is below
    ceiling: float  # above every cap

    @classmethod
    def of(
        cls, gain: FloatArray, size: FloatArray, is_open: BoolArray, *, ordered: bool = False
    ) -> "ClassTable":
        """Return the table of these classes where only some resources have capacity.

        ``ordered``: of equal classes the tie rule prefers to move the earlier ones.
        """
        code = row_hash(np.column_stack([gain, size]))
        tie = _TIE * fractions(code, gain.shape[1])
        if ordered:
            tie *= 1.0 + _equal_before(code)[:, None] / _ORDER
        cost = size[:, None] * (1.0 + tie)
        gain = np.where(is_open, gain, 0.0)
        return cls.given(gain, size, cost, is_open, 2.0 * float(gain.max(initial=1.0)))

    @classmethod
    def given(
        cls,
        gain: FloatArray,
        size: FloatArray,
        cost: FloatArray,
        is_open: BoolArray,
        ceiling: float,
    ) -> "ClassTable":
        """Return the table of classes whose tie costs are known."""
        cap, best, alone = _caps(gain, cost)
        least = float(cap[cap > 0].min(initial=np.inf))
        return cls(gain, size, cost, cap, best, alone, is_open, least, ceiling)

    def rows(self, index: IntArray, usable: BoolArray) -> "ClassTable":
        """Return the table of some classes where only some resources are usable."""
        gain = np.where(usable, self.gain[index], 0.0)
        ceiling = 2.0 * float(gain.max())
        return ClassTable.given(gain, self.size[index], self.cost[index], usable, ceiling)

    def without(self, closed: BoolArray, free: BoolArray) -> "ClassTable":
        """Return the table in which the ``closed`` resources are closed to the free classes."""
        cap, best, alone = _caps(np.where(self.is_open & ~closed, self.gain, 0.0), self.cost)
        return replace(
            self,
            cap=np.where(free, cap, self.cap),
            best=np.where(free[:, None], best, self.best),
            alone=np.where(free, alone, self.alone),
            is_open=self.is_open & ~closed,
            least_cap=float(cap[free].min()),
        )

    def fits(self, total: FloatArray, capacity: FloatArray) -> bool:
        """Return whether the resources can hold these class totals."""
        held = (self.size[:, None] * total).sum(axis=0)
        return bool((held <= capacity * (1 + 1e-12)).all())

    def first_guess(self, count: FloatArray, capacity: FloatArray) -> float:
        """Return a level that the first stage hardly exceeds, to begin the search for its caps."""
        held = count * self.size
        # At equal prices a level L of a class costs size · L / cap.
        total = float((held / np.maximum(self.cap, 1e-300)).sum())
        if total * self.least_cap > float(capacity.sum()):
            return 0.0
        order = np.argsort(self.cap, kind="stable")
        over = (held[:, None] * self.best)[order].cumsum(axis=0) > capacity * (1 + 1e-12)
        return float(np.nextafter(self.cap[order[over.any(axis=1).argmax()]], 0.0))


def _equal_before(code: npt.NDArray[np.uint64]) -> FloatArray:
    """Return classes → number of earlier classes with the same code."""
    order = code.argsort(kind="stable")
    first = np.ones(len(code), bool)
    first[1:] = code[order][1:] != code[order][:-1]
    place = np.arange(len(code))
    before = np.empty(len(code))
    before[order] = place - np.maximum.accumulate(np.where(first, place, 0))
    return before


def _caps(gain: FloatArray, cost: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    cap = gain.max(axis=1)
    at_cap = gain == cap[:, None]
    best = np.zeros_like(gain)
    best[np.arange(len(best)), np.where(at_cap, cost, np.inf).argmin(axis=1)] = cap > 0
    return cap, best, at_cap.sum(axis=1) == 1
