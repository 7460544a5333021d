"""Gandiva_fair: tickets, split stride, load balancing, trading (EuroSys 2020)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.mechanisms._tickets.pass_ranks import pass_ranks
from fairlead.mechanisms.gandiva_fair.allocation import SpeedKnowledge, allocate_all, newest_first
from fairlead.mechanisms.gandiva_fair.deficits import (
    TURNS,
    bounded_owed,
    owed_devices,
    ticket_factors,
)
from fairlead.mechanisms.gandiva_fair.devices import (
    FreeDevices,
    count_by_site,
    held_by_row,
    moves_to_homes,
    single_moves,
)
from fairlead.mechanisms.gandiva_fair.memory import (
    BUYER,
    DEVICES,
    NOWHERE,
    PRICE,
    SELLER,
    TRADE_COLUMNS,
    FairMemory,
)
from fairlead.mechanisms.gandiva_fair.memory_update import (
    advanced_homes_and_passes,
    homes_and_passes,
    profiled_so_far,
)
from fairlead.mechanisms.gandiva_fair.migration import migrate, migrate_traded
from fairlead.mechanisms.gandiva_fair.node_assignment import JobHomes
from fairlead.mechanisms.gandiva_fair.passes import Passes
from fairlead.mechanisms.gandiva_fair.quiet_quanta import LastQuantum, QuantumTurns
from fairlead.mechanisms.gandiva_fair.stride import (
    TIE,
    Aggregate,
    CentralStride,
    LargeJob,
    NodeStride,
    SiteStrides,
    gang_aware_stride,
)
from fairlead.mechanisms.gandiva_fair.tickets import DeviceSites
from fairlead.mechanisms.gandiva_fair.trading import TicketMarket, append_trades, ledger
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.lease import Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.base import WarmStart

_FEW = 1e-6
"""part of an accelerator's devices for which all tenants keep tickets: the rest is free to all"""


@dataclass(frozen=True)
class GandivaFair:
    """Give tenants the device time that their tickets entitle them to, on every accelerator.

    Jobs have a home: a node, or several for a gang that is larger. Each node runs those at home
    on it by gang-aware stride; a central stride coordinates the gangs that span nodes. Homes are
    chosen and changed so that all nodes carry the same load of tickets, and tenants trade
    devices of one accelerator for another's where both gain.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        reads_progress=False, divides_among_tenants=True
    )

    round_s: float = 60.0
    """the quantum"""
    gain: float = 0.05
    """least relative gain of speed for which a job migrates"""
    moves: int = 1
    """migrations in one quantum, besides those that trades ask for"""
    trading: bool = True
    """trade devices between tenants"""
    trade_devices: float = 1.0
    """fast devices exchanged in one trade"""
    make_up_s: float = 1800.0
    """seconds in which missed device time is made up for; 0: never"""
    profiling: bool = True
    """believe a speed only once a job of the profile has run there"""

    def initial(self) -> FairMemory:
        """Return a memory without jobs."""
        return FairMemory.empty()

    def plan(self, snap: Snapshot, memory: FairMemory) -> tuple[Plan, FairMemory]:
        """Return this quantum's jobs by split stride, after arrivals, trades and migrations."""
        return self.plan_warm(WarmStart(), snap, memory)

    def plan_warm(
        self, warm: WarmStart, snap: Snapshot, memory: FairMemory
    ) -> tuple[Plan, FairMemory]:
        """Return the same; homes and tickets are computed again only when something changes."""
        last = warm.state(self, LastQuantum)
        until = snap.starts_at + self.round_s
        repeated = last.repeated(snap, memory, self.round_s, self.make_up_s)
        if repeated is not None:
            moves, memory = repeated
            return Plan(*moves, until, until), memory
        sites = last.sites(snap)
        before, needs = advanced_homes_and_passes(snap, memory, sites, self.round_s)
        known = self._known(snap, memory)
        market = TicketMarket(snap, known)
        stands = market.keep(memory.trades)
        made = np.zeros((0, TRADE_COLUMNS))
        if self.trading:
            trades = list(market.trade(snap.starts_at, self.trade_devices))
            made = np.array(trades).reshape(-1, TRADE_COLUMNS)
        floor = _FEW * snap.capacity / len(market.held)
        homes = JobHomes(snap, sites, np.maximum(market.held, floor))
        _restore_homes(homes, before, needs)
        allocate_all(homes, known, (homes.home == NOWHERE).nonzero()[0])
        owed = self._compensate(
            homes, owed_devices(snap, memory, sites, len(homes.tickets), self.round_s)
        )
        moved = self._migrate(homes, known, made)
        job_tickets = homes.job_tickets()
        unchanged = _is_unchanged(memory, homes, job_tickets)
        served = memory.tickets if unchanged else homes.served(job_tickets)
        after = before.with_homes(homes.home, served, homes.needs)
        singles = single_moves(snap, homes, after.at)
        starts = singles or moves_to_homes(snap, homes, choose(after, homes))
        plan = Plan(*starts, until, until)
        undone = memory.trades[~stands]
        has_traded = bool(len(undone) or len(made))
        remembered = FairMemory(
            job=snap.job,
            home=after.home,
            passes=after.at,
            asked=job_tickets,  # lang: ok
            tickets=after.tickets,
            tenant=homes.tenant,
            received_s=snap.received_s,
            spread=_spread(homes),
            aggregate=after.aggregate,
            seen=known.seen,
            starts_at=snap.starts_at,
            due=homes.entitled_devices(),
            owed=owed,
            trades=np.concatenate([memory.trades[stands], made]) if has_traded else memory.trades,
            ledger=append_trades(memory.ledger, snap.starts_at, undone, made)
            if has_traded
            else memory.ledger,
        )
        unchanged = unchanged and not has_traded and np.array_equal(known.seen, memory.seen)
        # After migrations in two quanta in a row a third is likely.
        if not (unchanged or has_traded or (moved and last.moved)):
            kept = self._kept_by_next(homes, known, remembered, moved=moved)
            unchanged, homes = kept is not None, homes if kept is None else kept
        last.note(snap, remembered, homes, unchanged=unchanged, moved=moved)
        return plan, remembered

    def turn_rounds(
        self, warm: WarmStart, snap: Snapshot, memory: FairMemory, device: IntArray
    ) -> QuantumTurns | None:
        """Return the quanta that follow while homes, tickets and trades stay as they are."""
        last = warm.state(self, LastQuantum)
        return last.turn_rounds(snap, memory, device, self.round_s, self.make_up_s)

    def trades(
        self, memory: FairMemory, tenants: Sequence[Tenant], accelerators: Sequence[str]
    ) -> list[dict[str, object]]:
        """Return the trades made and undone, oldest first, by the names of tenants."""
        return ledger(memory, tenants, accelerators)

    def refill(self, snap: Snapshot, memory: FairMemory, idle: IntArray) -> Placements:
        """Return jobs for devices that fell idle: jobs with a home there, then new ones.

        A new job takes the newest accelerator that is free, and its home is where it runs.
        """
        sites = DeviceSites.of(snap)
        gang, free = snap.gang, FreeDevices(sites, idle)
        gangs, jobs = gang.tolist(), snap.job.tolist()
        waits = np.ones(len(snap.job) + 1, dtype=bool)
        waits[snap.holds] = False
        home, passes = homes_and_passes(snap, memory)
        for site, devices in free.at.items():
            rows = (waits[:-1] & (home == site)).nonzero()[0]
            for row in rows[_first_due(passes[rows], gang[rows], len(devices))].tolist():
                free.take(jobs[row], gangs[row], {site: gangs[row]})
        new: list[int] = (waits[:-1] & (home == NOWHERE)).nonzero()[0].tolist()
        if not new:
            return free.placements()
        newest, speed = newest_first(snap), snap.speed
        order = sorted(
            free.at, key=lambda site: (newest.index(int(sites.accelerator[site])), site)
        )
        for row in new:
            need = gangs[row]
            for site in order:
                if speed[row, sites.accelerator[site]] > 0 and len(free.at[site]) >= need:
                    free.take(jobs[row], need, {site: need})
                    break
        return free.placements()

    def _known(self, snap: Snapshot, memory: FairMemory) -> SpeedKnowledge:
        seen = profiled_so_far(snap, memory)
        if not self.profiling:
            seen[:] = True
        return SpeedKnowledge(snap, seen)

    def _compensate(self, homes: JobHomes, owed: FloatArray) -> FloatArray:
        """Raise the tickets of tenants that missed device time; return the remaining debt."""
        quanta = self.make_up_s / self.round_s
        if not quanta:
            return np.zeros_like(owed)
        due, demand = homes.entitled_devices(), homes.demands()
        if (np.abs(owed) <= TURNS * demand).all():
            return owed  # factors stay 1
        homes.owing = ticket_factors(owed, due, demand, quanta)
        return bounded_owed(owed, due, demand, quanta)

    def _migrate(self, homes: JobHomes, known: SpeedKnowledge, trades: FloatArray) -> bool:
        for trade in trades:
            for party, count in ((SELLER, 1.0), (BUYER, trade[PRICE])):
                most = math.ceil(trade[DEVICES] * count)
                migrate_traded(homes, known, self.gain, int(trade[party]), most)
        return migrate(homes, known, self.gain, self.moves)

    def _kept_by_next(
        self, homes: JobHomes, known: SpeedKnowledge, memory: FairMemory, *, moved: bool
    ) -> JobHomes | None:
        """Return the homes as the next quantum restores them; None if it may change them.

        ``moved``: jobs have migrated to these homes; else it is known that by them none would.
        It has the same jobs, trades and factors on tickets, or it is planned in full.
        """
        if homes.needs or (homes.home < 0).any():
            return None
        again = JobHomes(homes.snap, homes.sites, homes.tickets)
        again.restore_homes(np.arange(len(homes.home)), homes.home)
        again.owing = homes.owing
        # Sums in another order may differ in the last bit.
        same = np.array_equal(again.job_tickets(), memory.asked) and np.array_equal(
            again.entitled_devices(), memory.due
        )
        if not same:
            return None
        if not moved and homes.has_pools_like(again):
            return again
        return None if migrate(again, known, self.gain, self.moves) else again


def choose(passes: Passes, homes: JobHomes) -> list[int]:
    """Return the rows that run this quantum: central stride, then every site's own (Figure 3)."""
    if not homes.needs:
        return SiteStrides.of(passes.home, passes.gang, homes.sites.size).choose(passes.at)
    room: list[int] = homes.sites.size.tolist()
    local = local_schedulers(passes, room)
    contested = sorted({site for where in homes.needs.values() for site in where})
    central = CentralStride(
        {site: room[site] for site in contested},
        tuple(LargeJob(row, where, float(passes.at[row])) for row, where in homes.needs.items()),
        tuple(
            Aggregate(site, local[site].demand, float(passes.aggregate[site]))
            for site in contested
            if site in local
        ),
    )
    turn = central.choose()
    chosen = list(turn.large)
    for site, scheduler in local.items():
        chosen += scheduler.choose(turn.left.get(site))
    return chosen


def local_schedulers(passes: Passes, room: list[int]) -> dict[int, NodeStride]:
    """Return site → the scheduler of its small jobs, which are numbered by row."""
    columns: dict[int, list[tuple[int, int, float, float]]] = {}
    rows = (passes.home >= 0).nonzero()[0]
    for row, site, gang, tickets, at in zip(
        rows.tolist(),
        passes.home[rows].tolist(),
        passes.gang[rows].tolist(),
        passes.tickets[rows].tolist(),
        passes.at[rows].tolist(),
        strict=True,
    ):
        columns.setdefault(site, []).append((row, gang, tickets, at))
    made = {}
    for site, entries in columns.items():
        job, gangs, worth, due = zip(*entries, strict=True)
        made[site] = NodeStride(room[site], job, gangs, worth, due)
    return made


def _first_due(passes: FloatArray, gang: IntArray, devices: int) -> list[int]:
    """Return the entries that Algorithm 1 runs, as ``gang_aware_stride`` does."""
    if (gang > 1).any():
        return gang_aware_stride(passes.tolist(), gang.tolist(), devices)
    first: list[int] = pass_ranks(passes, TIE).argsort(kind="stable")[:devices].tolist()
    return first


def _is_unchanged(memory: FairMemory, homes: JobHomes, asked: FloatArray) -> bool:
    """Return whether homes and tickets are those of the last quantum, to the last bit."""
    return (
        np.array_equal(memory.job, homes.snap.job)
        and np.array_equal(memory.home, homes.home)
        and np.array_equal(memory.asked, asked)
        and np.array_equal(memory.spread, _spread(homes))
    )


def _restore_homes(
    homes: JobHomes, before: Passes, needs: Mapping[int, Mapping[int, int]]
) -> None:
    """Keep the jobs' homes; the home of a new job that already runs is where it runs."""
    small = (before.home >= 0).nonzero()[0]
    homes.restore_homes(small, before.home[small])
    for row, where in needs.items():
        homes.set_home(row, where)
    for row, devices in held_by_row(homes.snap, homes.home == NOWHERE).items():
        where = count_by_site(homes.sites, devices)
        if len(where) == 1:
            homes.set_home(row, where)


def _spread(homes: JobHomes) -> IntArray:
    """Return rows of (job, site, devices) of gangs that span sites."""
    entries = [
        (int(homes.snap.job[row]), site, devices)
        for row, where in homes.needs.items()
        for site, devices in where.items()
    ]
    return np.array(entries, dtype=np.int64).reshape(-1, 3)
