"""Lottery scheduling of gangs, with and without backfilling: Gandiva_fair's baselines (§3.1)."""

import heapq
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import numpy as np

from fairlead.mechanisms._tickets.effective_tickets import AcceleratorPool
from fairlead.model.arrays import NO_INTS, BoolArray, FloatArray, IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.tenants.tree import TenantTree
from fairlead.placement import plan_moves

_MAX_QUEUED_WINS = 16
"""queued wins per job, on average over the jobs that can use the same accelerators"""
_MAX_VOID_DRAWS = 32
"""void draws in a row, after which only fitting jobs are drawn, with the same odds"""
_64_BITS = (1 << 64) - 1


@dataclass(frozen=True, slots=True, eq=False)
class LotteryMemory:
    """The number of tickets drawn so far, and the wins that wait to be honoured."""

    WIRE_NAME: ClassVar[str] = "Tombola"  # lang: ok

    draws: int
    queue: IntArray
    """jobs that won a quantum and have not had it, oldest first; a job may have won several.

    Never more than ``_MAX_QUEUED_WINS`` for a job on average, and none for a job that always runs.
    """


@dataclass(frozen=True)
class Lottery:
    """Draw tickets, normalised by gang, until the devices are taken or no job fits.

    A winner that does not fit, or that runs already, queues for a later quantum, once for every
    win; queued jobs come before new draws, and while the queue is full such wins are void. A job
    with tickets for more than all the time draws with those for all of it, and runs in every
    quantum where all such jobs fit at once. With ``backfill`` winners that do not fit are passed
    over, which starves large gangs. A job runs on the fastest accelerator with room for it.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        reads_progress=False, per_accelerator_gangs=True, divides_among_tenants=True
    )

    round_s: float = 60.0
    """the quantum"""
    backfill: bool = False
    """pass over winners that do not fit instead of letting them queue"""
    seed: int = 0
    """seed of the draws"""

    def initial(self) -> LotteryMemory:
        """Return a memory without draws."""
        return LotteryMemory(0, NO_INTS)

    def plan(self, snap: Snapshot, memory: LotteryMemory) -> tuple[Plan, LotteryMemory]:
        """Return the winners of this quantum's draws."""
        table = _Draws(snap, self.seed, memory.draws)
        queue: list[int] = []
        if self.backfill:
            table.draw_without_queue()
        else:
            at = np.searchsorted(snap.job, memory.queue)
            alive = np.append(snap.job, -1)[at] == memory.queue
            queue = table.draw_with_queue(at[alive].tolist())
        until = snap.starts_at + self.round_s
        plan = Plan(*plan_moves(snap, table.wanted), until, until)
        return plan, LotteryMemory(table.draws, snap.job[np.array(queue, dtype=np.int64)])


class _Draws:
    """One quantum's draws under way."""

    def __init__(self, snap: Snapshot, seed: int, draws: int) -> None:
        self._seed, self.draws = seed, draws
        self._gang: list[list[int]] = np.broadcast_to(snap.gang_on, snap.speed.shape).tolist()
        self._free: list[int] = snap.capacity.tolist()
        speed = snap.speed
        # Where a job runs already it stays, if there is room.
        order = (-(speed + speed * (snap.on[:, None] == np.arange(speed.shape[1])))).argsort(1)
        self._accelerators = [
            [k for k in accelerators if runs[k]]
            for accelerators, runs in zip(order.tolist(), (speed > 0).tolist(), strict=True)
        ]
        fits: BoolArray = (speed > 0) & (snap.gang_on <= snap.capacity)
        self._usable = [row.tobytes() for row in fits]
        """jobs → which accelerators it can use now"""
        self._tickets: list[float] = tickets_per_device(snap).tolist()
        self._time = entitled_time(snap, np.logical_or.reduce(fits, axis=1))
        self._waits = set(range(len(self._gang)))
        self._smallest: list[list[tuple[int, int]]] = [[] for _ in self._free]
        """accelerator → a heap of (gang, row) of those who can use it, some of whom run"""
        for row, accelerators in enumerate(self._accelerators):
            for accelerator in accelerators:
                self._smallest[accelerator].append((self._gang[row][accelerator], row))
        for heap in self._smallest:
            heapq.heapify(heap)
        self.wanted: IntArray = np.full(len(self._gang), -1, dtype=np.int64)

    def draw_with_queue(self, queue: list[int]) -> list[int]:
        """Honour wins and draw from all tickets each time; return the wins that still wait."""
        always = (self._time >= 1.0).nonzero()[0].tolist()
        if self._place_if_all_fit(always):
            queue = [row for row in queue if row in self._waits]
        queue = [row for row in queue if not self._run(row)]
        room = Counter(
            {
                accelerators: _MAX_QUEUED_WINS * n
                for accelerators, n in Counter(self._usable).items()
            }
        )
        room.subtract(self._usable[row] for row in queue)
        odds = list(accumulate(self._time.tolist()))
        blanks = 0
        while self._any_fits():
            row = self._drawn(odds) if blanks < _MAX_VOID_DRAWS else self._draw_among_fitting()
            if self._run(row):
                blanks = 0
            elif room[self._usable[row]] > 0:
                room[self._usable[row]] -= 1
                queue.append(row)
            else:
                blanks += 1
        return queue

    def draw_without_queue(self) -> None:
        """Draw from the tickets not drawn yet, and drop jobs that do not fit."""
        left = sorted(self._waits)
        while left and self._any_fits():
            row = left.pop(self._drawn(list(accumulate(self._tickets[row] for row in left))))
            if not self._run(row):
                self._waits.discard(row)

    def _any_fits(self) -> bool:
        for free, heap in zip(self._free, self._smallest, strict=True):
            while heap and heap[0][1] not in self._waits:
                heapq.heappop(heap)
            if heap and heap[0][0] <= free:
                return True
        return False

    def _place(self, row: int) -> int | None:
        gang, free = self._gang[row], self._free
        return next((k for k in self._accelerators[row] if free[k] >= gang[k]), None)

    def _place_if_all_fit(self, rows: list[int]) -> bool:
        """Run these jobs if all fit at once, else none of them."""
        free = list(self._free)
        for row in sorted(rows, key=lambda row: -min(self._gang[row])):
            if not self._run(row):
                self._free = free
                self._waits.update(rows)
                self.wanted[:] = -1
                return False
        return True

    def _run(self, row: int) -> bool:
        accelerator = self._place(row) if row in self._waits else None
        if accelerator is None:
            return False
        self._waits.discard(row)
        self._free[accelerator] -= self._gang[row][accelerator]
        self.wanted[row] = accelerator
        return True

    def _drawn(self, odds: list[float]) -> int:
        return min(bisect_right(odds, self._uniform() * odds[-1]), len(odds) - 1)

    def _draw_among_fitting(self) -> int:
        rows = [row for row in sorted(self._waits) if self._place(row) is not None]
        return rows[self._drawn(list(accumulate(float(self._time[row]) for row in rows)))]

    def _uniform(self) -> float:
        self.draws += 1
        return _mixed(_mixed(self._seed) ^ self.draws) / (_64_BITS + 1)


def tickets_per_device(snap: Snapshot) -> FloatArray:
    """Return jobs → its tickets for each device of its gang (Eq. 1, by the jobs' weights)."""
    tenants = max(len(snap.tenants), int(snap.tenant.max(initial=-1)) + 1)
    mass = np.bincount(snap.tenant, snap.gang * snap.weight, tenants)
    tickets = TenantTree(snap.tenants).entitlements(mass > 0)[snap.tenant]
    per_device: FloatArray = tickets * snap.weight / mass[snap.tenant]
    return per_device


def entitled_time(snap: Snapshot, usable: BoolArray) -> FloatArray:
    """Return jobs → part of the time in which it is due to run: by tickets, at most all of it.

    Time that one cannot use is divided among the others; a job not ``usable`` is due nothing.
    """
    due = np.zeros(len(usable))
    gang = snap.gang[usable].astype(np.float64)
    pool = AcceleratorPool(tickets_per_device(snap)[usable] * gang, float(snap.capacity.sum()))
    pool.demand += gang
    due[usable] = pool.due / gang
    return due


def _mixed(value: int) -> int:
    """Return 64 well mixed bits of a number: the splitmix64 finaliser."""
    value = (value + 0x9E3779B97F4A7C15) & _64_BITS
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _64_BITS
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _64_BITS
    return value ^ (value >> 31)
