"""Hadar: gangs on mixed accelerators, chosen round by round by dual prices (§III)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.mechanisms.hadar.auction import Auction, HadarOptions
from fairlead.mechanisms.hadar.bids import undisturbed_holders
from fairlead.model.arrays import NO_INTS, IntArray
from fairlead.model.lease import NO_PLACEMENTS, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.placement import plan_transition


@dataclass(frozen=True, slots=True)
class HadarMemory:
    """The time of the last full auction, and counts of rounds."""

    WIRE_NAME: ClassVar[str] = "Rounds"

    sold_at: float = -math.inf
    changes: int = -1
    """the snapshot's count of changes then"""
    planned: int = 0
    disturbed: int = 0
    """rounds in which a running job was moved or stopped"""


@dataclass(frozen=True)
class Hadar(HadarOptions):
    """Run the jobs that pay best at prices that rise as nodes fill up.

    A device's price grows from U_min on an empty node to U_max on a full one (Eqs. 5-7). Each
    job gets the devices with the greatest payoff (utility less price; FIND_ALLOC), mixed
    accelerators included, and a dynamic programme over the queue decides who is admitted
    (Algorithm 2). Running jobs keep their devices unless a new plan is worth more in total,
    restarts counted; only jobs whose devices change restart. Old jobs that wait may be passed
    over for new ones for as long as these come: nothing is promised against starvation.
    """

    at_once: bool = False
    """let waiting jobs use devices that fall idle within a round"""

    def initial(self) -> HadarMemory:
        """Return the memory before the first round."""
        return HadarMemory()

    def plan(self, snap: Snapshot, memory: HadarMemory) -> tuple[Plan, HadarMemory]:
        """Return the round's plan, and the count of rounds."""
        stale = memory.changes != snap.changes or (
            snap.starts_at - memory.sold_at >= self.reconsider_s
        )
        stop, start = NO_INTS, NO_PLACEMENTS
        if stale or not _nothing_to_sell(snap):
            auction = Auction(self, snap)
            running = auction.decide(again=stale)
            stop, start = plan_transition(snap, auction.placements(running))
        seen = HadarMemory(
            snap.starts_at if stale else memory.sold_at,
            snap.changes,
            memory.planned + 1,
            memory.disturbed + bool(len(stop)),
        )
        until = snap.starts_at + self.round_s
        return Plan(stop, start, until, until, stale), seen

    def refill(self, snap: Snapshot, memory: HadarMemory, idle: IntArray) -> Placements:
        """Return waiting jobs for the idle devices, if they may start within a round."""
        del memory
        if not self.at_once:
            return NO_PLACEMENTS
        auction = Auction(self, snap)
        return Placements.of(auction.placements(auction.fill_idle(set(idle.tolist()))))


def _nothing_to_sell(snap: Snapshot) -> bool:
    """Return whether all that run may continue and no device is idle or no job waits."""
    holders = undisturbed_holders(snap)
    if holders is None:
        return False
    return len(holders) == len(snap.usable) or len(np.unique(holders)) == len(snap.job)
