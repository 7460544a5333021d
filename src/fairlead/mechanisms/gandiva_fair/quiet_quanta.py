"""Quanta in which homes, tickets and trades stay as they are; only passes and debts move on."""

from dataclasses import dataclass

import numpy as np

from fairlead.mechanisms.gandiva_fair.deficits import (
    bounded_owed,
    owed_devices,
    ticket_factors,
)
from fairlead.mechanisms.gandiva_fair.devices import moves_to_homes
from fairlead.mechanisms.gandiva_fair.memory import FairMemory
from fairlead.mechanisms.gandiva_fair.node_assignment import JobHomes
from fairlead.mechanisms.gandiva_fair.stride import SiteStrides
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.lease import Placements
from fairlead.model.snapshot import Snapshot

Moves = tuple[IntArray, Placements]
"""leases to stop, and placements to start"""


class LastQuantum:
    """The last quantum of one planner, if nothing but passes and debts changed in it.

    Homes, trades and tickets depend on the jobs, the devices, the accelerators that each profile
    has seen and the factors on tickets. While these stay the same, so do the decisions.
    """

    def __init__(self) -> None:
        self._grounds: tuple[object, ...] = ()
        self._memory: FairMemory | None = None
        self._steady: _Steady | None = None

    def note(
        self, snap: Snapshot, memory: FairMemory, homes: JobHomes, *, unchanged: bool
    ) -> None:
        """Keep a quantum that ended with this memory; ``unchanged``: with all homes as before."""
        self._memory = self._steady = None
        if unchanged and not homes.needs and not (homes.home < 0).any():
            self._grounds, self._memory = _grounds(snap), memory
            self._steady = _Steady.of(homes, memory)

    def repeated(
        self, snap: Snapshot, memory: FairMemory, round_s: float, make_up_s: float
    ) -> tuple[Moves, FairMemory] | None:
        """Return the moves of a quantum after ``memory``, and the memory after it.

        None if the last one was not steady or something else has changed since.
        """
        if self._steady is None or memory is not self._memory or _grounds(snap) != self._grounds:
            return None
        steady = self._steady
        owed = steady.owed(snap, memory, round_s, make_up_s)
        if owed is None or ((snap.received_s > 0) > steady.seen).any():
            return None
        passes = steady.passes_after(snap, memory, round_s)
        self._memory = _memory_after(memory, snap, passes, owed)
        moves = moves_to_homes(snap, steady.homes, steady.strides.choose(passes))
        return moves, self._memory


def _grounds(snap: Snapshot) -> tuple[object, ...]:
    profiles = snap.profiles
    return (
        *(snap.job.tobytes(), snap.profile.tobytes(), snap.usable.tobytes(), snap.tenants),
        *(profiles.content, profiles.tenant.tobytes(), snap.cluster.accelerators),
        *(snap.cluster.node_of.tobytes(), snap.cluster.accelerator_of.tobytes()),
    )


def _memory_after(
    memory: FairMemory, snap: Snapshot, passes: FloatArray, owed: FloatArray
) -> FairMemory:
    return FairMemory(
        job=memory.job,
        home=memory.home,
        passes=passes,
        asked=memory.asked,  # lang: ok
        tickets=memory.tickets,
        tenant=memory.tenant,
        received_s=snap.received_s,
        spread=memory.spread,
        aggregate=memory.aggregate,
        seen=memory.seen,
        starts_at=snap.starts_at,
        due=memory.due,
        owed=owed,
        trades=memory.trades,
        ledger=memory.ledger,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Steady:
    """Homes without gangs that span sites, and the values that follow from them."""

    homes: JobHomes
    strides: SiteStrides
    due: FloatArray
    demand: FloatArray
    stride: FloatArray
    """rows → by how much a quantum moves its pass on"""
    by_site: IntArray
    """the rows in the order of their sites"""
    first: IntArray
    """sites with jobs → where its rows begin in that order"""
    place: IntArray
    """rows → its site, numbered among those with jobs"""
    seen: BoolArray
    """rows × accelerators → its profile has run there"""

    @classmethod
    def of(cls, homes: JobHomes, memory: FairMemory) -> "_Steady":
        tickets = memory.tickets
        stride = np.divide(homes.gang, tickets, out=np.zeros_like(tickets), where=tickets > 0)
        _, place, count = np.unique(homes.home, return_inverse=True, return_counts=True)
        return cls(
            homes,
            SiteStrides.of(homes.home, homes.gang, homes.sites.size),
            homes.entitled_devices(),
            homes.demands(),
            stride,
            place.argsort(kind="stable"),
            count.cumsum() - count,
            place,
            memory.seen[homes.profile],
        )

    def owed(
        self, snap: Snapshot, memory: FairMemory, round_s: float, make_up_s: float
    ) -> FloatArray | None:
        """Return the debt after the last quantum; None if it changes the factors on tickets."""
        quanta = make_up_s / round_s
        if not quanta:
            return memory.owed
        sites, tenants = self.homes.sites, len(self.homes.tickets)
        owed = owed_devices(snap, memory, sites, tenants, round_s)
        factors = ticket_factors(owed, self.due, self.demand, quanta)
        if not np.array_equal(factors, self.homes.owing):
            return None
        return bounded_owed(owed, self.due, self.demand, quanta)

    def passes_after(self, snap: Snapshot, memory: FairMemory, round_s: float) -> FloatArray:
        """Return the passes, as ``Passes.charged`` and ``with_homes`` compute them."""
        quanta = (snap.received_s - memory.received_s).sum(axis=1) / round_s
        at = memory.passes + quanta * self.stride
        least = np.minimum.reduceat(at[self.by_site], self.first)[self.place]
        ahead = (at - least) * memory.tickets
        # Multiplied and divided as for a job whose tickets change, to the same last bit.
        ahead = np.divide(
            ahead, memory.tickets, out=np.zeros_like(ahead), where=memory.tickets > 0
        )
        after: FloatArray = least + ahead
        return after
