"""Quanta in which homes, tickets and trades stay as they are; only passes and debts move on."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fairlead.compiled import compiled
from fairlead.mechanisms._tickets.device_turns import DeviceTurns
from fairlead.mechanisms._tickets.pass_ranks import pass_ranks
from fairlead.mechanisms._tickets.turn_run import DEVICE, LAST_AT, TurnRun
from fairlead.mechanisms.base import Measured, Turn
from fairlead.mechanisms.gandiva_fair.deficits import (
    MAX_FACTOR,
    MIN_OWED,
    TURNS,
    TenantJobs,
    bounded_owed,
    owed_by_jobs,
    owed_devices,
    ticket_factors,
)
from fairlead.mechanisms.gandiva_fair.devices import (
    moves_to_homes,
    single_moves,
    sites_by_first_row,
)
from fairlead.mechanisms.gandiva_fair.memory import FairMemory
from fairlead.mechanisms.gandiva_fair.node_assignment import JobHomes
from fairlead.mechanisms.gandiva_fair.stride import TIE, SiteStrides
from fairlead.mechanisms.gandiva_fair.tickets import DeviceSites
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.cluster import Cluster
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
        self.moved = False
        """whether a job has migrated in it"""
        self._sites: tuple[Cluster, IntArray, DeviceSites] | None = None

    def sites(self, snap: Snapshot) -> DeviceSites:
        """Return the sites of a snapshot, the same while devices stay the same."""
        cluster, usable = snap.cluster, snap.usable
        if (
            self._sites is None
            or self._sites[0] is not cluster
            or not np.array_equal(self._sites[1], usable)
        ):
            self._sites = cluster, usable.copy(), DeviceSites.of(snap)
        return self._sites[2]

    def note(
        self,
        snap: Snapshot,
        memory: FairMemory,
        homes: JobHomes,
        *,
        unchanged: bool,
        moved: bool,
    ) -> None:
        """Keep a quantum that ended with this memory; ``unchanged``: the next keeps all homes."""
        self._memory = self._steady = None
        self.moved = moved
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
        passes = steady.passes_after(snap.received_s, memory, round_s)
        self.moved = False
        self._memory = _memory_after(memory, snap.starts_at, snap.received_s, passes, owed)
        moves = single_moves(snap, steady.homes, passes)
        if moves is None:
            moves = moves_to_homes(snap, steady.homes, steady.strides.choose(passes))
        return moves, self._memory

    def turn_rounds(
        self,
        snap: Snapshot,
        memory: FairMemory,
        device: IntArray,
        round_s: float,
        make_up_s: float,
    ) -> "QuantumTurns | None":
        """Return the quanta after ``memory`` while jobs of one device take turns, if they do."""
        steady = self._steady
        if steady is None or memory is not self._memory or (steady.homes.gang > 1).any():
            return None
        sites = steady.homes.sites
        devices = DeviceTurns(steady.homes.home, device, snap.usable, sites.of_device, snap.job)
        if not devices.fit():
            return None
        return QuantumTurns(self, steady, memory, devices, round_s, make_up_s)

    def advance(self, memory: FairMemory) -> None:
        """Keep the memory after another quantum in which only passes and debts changed."""
        self._memory, self.moved = memory, False


class QuantumTurns:
    """Quanta in which jobs of one device take turns at home; only passes and debts change."""

    def __init__(
        self,
        last: LastQuantum,
        steady: "_Steady",
        memory: FairMemory,
        devices: DeviceTurns,
        round_s: float,
        make_up_s: float,
    ) -> None:
        self._last, self._steady, self.memory, self._devices = last, steady, memory, devices
        self._round_s, self._make_up_s = round_s, make_up_s
        homes = steady.homes
        tenants, width = homes.tickets.shape
        self._jobs = TenantJobs.of(homes.tenant, homes.gang, tenants, width)
        self._sites = sites_by_first_row(homes.home)
        self._seen = steady.seen.astype(np.int64)

    def next_turn(
        self, at: float, received_s: FloatArray, measured: Measured | None
    ) -> Turn | None:
        """Return the jobs whose turn it is; None if tickets change."""
        del measured
        steady, memory, round_s = self._steady, self.memory, self._round_s
        owed = memory.owed
        if self._make_up_s:
            owed = owed_by_jobs(memory, at, received_s, self._jobs, round_s)
            bounded = steady.bounded(owed, self._make_up_s / round_s)
            if bounded is None:
                return None
            owed = bounded
        if ((received_s > 0) > steady.seen).any():
            return None
        passes = steady.passes_after(received_s, memory, round_s)
        self.memory = _memory_after(memory, at, received_s, passes, owed)
        self._last.advance(self.memory)
        moves = self._devices.take(pass_ranks(passes, TIE), self._sites)
        return Turn(*moves, self.memory)

    def take_rounds(self, run: TurnRun) -> int:
        """Take quanta until something else happens and return how many, as ``next_turn`` does."""
        if compiled is None:
            return 0
        steady, memory = self._steady, self.memory
        passes = np.array([memory.passes, memory.tickets, steady.stride])
        received_s = np.array(memory.received_s, order="C")
        due, owing = steady.due, steady.homes.owing
        tenants = np.array([memory.owed, due, steady.chance, steady.demand, owing])
        idle = np.zeros(len(due), dtype=np.int64)
        if self._jobs.idle is not None:
            idle[self._jobs.idle] = 1
        quanta = self._make_up_s / self._round_s
        rule = quanta, steady.unraised, 1 - MIN_OWED, TURNS, MAX_FACTOR
        make_up = np.array([memory.starts_at, *rule])
        count = compiled.quantum_rounds(
            *run.arguments(self._devices, self._sites),
            *(passes, received_s, tenants, steady.homes.tenant, idle, self._seen, make_up),
        )
        if count:
            self._devices.continue_from(run.ints[DEVICE].copy())
            at, owed = float(run.clock[LAST_AT]), tenants[0] if quanta else memory.owed
            self.memory = _memory_after(memory, at, received_s, passes[0].copy(), owed)
            self._last.advance(self.memory)
        return count


def _grounds(snap: Snapshot) -> tuple[object, ...]:
    profiles = snap.profiles
    return (
        *(snap.job.tobytes(), snap.profile.tobytes(), snap.usable.tobytes(), snap.tenants),
        *(profiles.content, profiles.tenant.tobytes(), snap.cluster.accelerators),
        *(snap.cluster.node_of.tobytes(), snap.cluster.accelerator_of.tobytes()),
    )


def _memory_after(
    memory: FairMemory,
    starts_at: float,
    received_s: FloatArray,
    passes: FloatArray,
    owed: FloatArray,
) -> FairMemory:
    return FairMemory(
        job=memory.job,
        home=memory.home,
        passes=passes,
        asked=memory.asked,  # lang: ok
        tickets=memory.tickets,
        tenant=memory.tenant,
        received_s=received_s,
        spread=memory.spread,
        aggregate=memory.aggregate,
        seen=memory.seen,
        starts_at=starts_at,
        due=memory.due,
        owed=owed,
        trades=memory.trades,
        ledger=memory.ledger,
    )


class _SiteRows(NamedTuple):
    """The rows of each site with jobs."""

    by_site: IntArray
    """the rows in the order of their sites"""
    first: IntArray
    """sites → where its rows begin in that order"""
    place: IntArray
    """rows → its site, numbered among those with jobs"""


@dataclass(frozen=True, eq=False)
class _Steady:
    """Homes without gangs that span sites, and the values that follow from them."""

    homes: JobHomes
    due: FloatArray
    demand: FloatArray
    chance: FloatArray
    """tenants × accelerators → debt that a cycle of strides explains"""
    unraised: bool
    """whether no tickets are raised or lowered"""
    stride: FloatArray
    """rows → by how much a quantum moves its pass on"""
    seen: BoolArray
    """rows × accelerators → its profile has run there"""

    @classmethod
    def of(cls, homes: JobHomes, memory: FairMemory) -> "_Steady":
        tickets = memory.tickets
        stride = np.divide(homes.gang, tickets, out=np.zeros_like(tickets), where=tickets > 0)
        demand = homes.demands()
        return cls(
            homes,
            homes.entitled_devices(),
            demand,
            TURNS * demand,
            bool((homes.owing == 1.0).all()),
            stride,
            memory.seen[homes.profile],
        )

    @cached_property
    def strides(self) -> SiteStrides:
        """The schedulers of all sites; only gangs need them."""
        return SiteStrides.of(self.homes.home, self.homes.gang, self.homes.sites.size)

    @cached_property
    def _rows(self) -> _SiteRows:
        _, place, count = np.unique(self.homes.home, return_inverse=True, return_counts=True)
        return _SiteRows(place.argsort(kind="stable"), count.cumsum() - count, place)

    def owed(
        self, snap: Snapshot, memory: FairMemory, round_s: float, make_up_s: float
    ) -> FloatArray | None:
        """Return the debt after the last quantum; None if it changes the factors on tickets."""
        quanta = make_up_s / round_s
        if not quanta:
            return memory.owed
        sites, tenants = self.homes.sites, len(self.homes.tickets)
        return self.bounded(owed_devices(snap, memory, sites, tenants, round_s), quanta)

    def bounded(self, owed: FloatArray, quanta: float) -> FloatArray | None:
        """Return the part of a debt that is remembered; None if it changes the factors."""
        if self.unraised and np.count_nonzero(np.abs(owed) > self.chance) == 0:
            return owed  # within the turns of a cycle, so that factors stay 1
        factors = ticket_factors(owed, self.due, self.demand, quanta)
        if not np.array_equal(factors, self.homes.owing):
            return None
        return bounded_owed(owed, self.due, self.demand, quanta)

    def passes_after(
        self, received_s: FloatArray, memory: FairMemory, round_s: float
    ) -> FloatArray:
        """Return the passes, as ``Passes.charged`` and ``with_homes`` compute them."""
        quanta = (received_s - memory.received_s).sum(axis=1) / round_s
        at = memory.passes + quanta * self.stride
        rows = self._rows
        least = np.minimum.reduceat(at[rows.by_site], rows.first)[rows.place]
        ahead = (at - least) * memory.tickets
        # Multiplied and divided as for a job whose tickets change, to the same last bit.
        ahead = np.divide(
            ahead, memory.tickets, out=np.zeros_like(ahead), where=memory.tickets > 0
        )
        after: FloatArray = least + ahead
        return after
