"""The queue of bids as arrays: single bids are made only where they are read one by one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from fairlead.mechanisms.hadar.find_alloc import Bid
from fairlead.model.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class BidQueue(Sequence[Bid]):
    """Bids in the order in which they are considered."""

    row: IntArray
    gang: IntArray
    together: FloatArray
    """bids × accelerators, as ``Bid.together``"""
    spread: FloatArray

    @classmethod
    def of(cls, bids: Sequence[Bid]) -> "BidQueue":
        """Return these bids as arrays."""
        if isinstance(bids, BidQueue):
            return bids
        row, gang = (np.array([bid[i] for bid in bids], dtype=np.int64) for i in (0, 1))
        together, spread = (np.array([bid[i] for bid in bids], dtype=np.float64) for i in (2, 3))
        return cls(row, gang, together, spread)

    def __len__(self) -> int:
        return len(self.row)

    @overload
    def __getitem__(self, place: int) -> Bid: ...

    @overload
    def __getitem__(self, place: slice) -> "BidQueue": ...

    def __getitem__(self, place: int | slice) -> "Bid | BidQueue":
        if isinstance(place, slice):
            return self.where(place)
        together, spread = self.together[place].tolist(), self.spread[place].tolist()
        return Bid(int(self.row[place]), int(self.gang[place]), together, spread)

    def __iter__(self) -> Iterator[Bid]:
        columns = self.row, self.gang, self.together, self.spread
        return map(Bid, *(column.tolist() for column in columns))

    @property
    def single(self) -> bool:
        """Whether every job needs one device."""
        return bool((self.gang == 1).all())

    def where(self, those: BoolArray | IntArray | slice) -> "BidQueue":
        """Return the bids for which ``those`` holds, or at these places."""
        together = self.together[those]
        spread = together if self.spread is self.together else self.spread[those]
        return BidQueue(self.row[those], self.gang[those], together, spread)
