"""Lottery scheduling of gangs, with and without backfilling: Gandiva_fair's baselines (§3.1)."""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import numpy as np

from fairlead.mechanisms._tickets.effective_tickets import AcceleratorPool
from fairlead.model.arrays import NO_INTS, BoolArray, FloatArray, IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.plan import ABSENT, Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.tenants.tree import TenantTree
from fairlead.placement import plan_moves
from fairlead.policies.base import WarmStart

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
        return self.plan_warm(WarmStart(), snap, memory)

    def plan_warm(
        self, warm: WarmStart, snap: Snapshot, memory: LotteryMemory
    ) -> tuple[Plan, LotteryMemory]:
        """Return the same; tickets are counted again only when jobs or devices change."""
        last = warm.state(self, _LastQuantum)
        jobs = last.jobs_of(snap)
        until = snap.starts_at + self.round_s
        may_repeat = not self.backfill and not len(memory.queue)
        wanted = last.repeated(snap) if may_repeat else None
        if wanted is not None:
            return Plan(*plan_moves(snap, wanted), until, until), memory
        draws = _Draws(snap, jobs, self.seed, memory.draws)
        queue = NO_INTS
        if self.backfill:
            draws.draw_without_queue()
        else:
            at = np.searchsorted(snap.job, memory.queue)
            alive = np.append(snap.job, -1)[at] == memory.queue
            queue = draws.draw_with_queue(at[alive])
        wanted = np.array(draws.wanted, dtype=np.int64)
        if may_repeat and draws.draws == memory.draws:
            last.note(snap, wanted)
        plan = Plan(*plan_moves(snap, wanted), until, until)
        return plan, LotteryMemory(draws.draws, snap.job[queue])


class _Jobs:
    """Properties of a snapshot's jobs that stay the same while none comes or ends."""

    def __init__(self, snap: Snapshot) -> None:
        profiles, width = snap.profiles, len(snap.capacity)
        used, profile = np.unique(snap.profile, return_inverse=True)
        gang_on = profiles.gang_on[used]
        gangs: list[list[int]] = np.broadcast_to(gang_on, (len(used), width)).tolist()
        fits: BoolArray = (profiles.speed[used] > 0) & (gang_on <= snap.capacity)
        rows = profile.tolist()
        self.gang = [gangs[p] for p in rows]
        """jobs → accelerators → devices needed at once"""
        code: dict[bytes, int] = {}
        codes = [code.setdefault(row.tobytes(), len(code)) for row in fits]
        self.usable: IntArray = np.array(codes, dtype=np.int64)[profile]
        """jobs → number of the set of accelerators that it can use now"""
        self.room: IntArray = _MAX_QUEUED_WINS * np.bincount(self.usable, minlength=len(code))
        """sets of accelerators → wins that may queue"""
        self.time = entitled_time(snap, np.logical_or.reduce(fits, axis=1)[profile])
        self.odds = list(accumulate(self.time.tolist()))
        always: list[int] = (self.time >= 1.0).nonzero()[0].tolist()
        self.always = sorted(always, key=lambda row: -min(self.gang[row]))
        """jobs that are due all of the time, larger gangs first"""
        runs: list[list[bool]] = (profiles.speed[used] > 0).tolist()
        self.smallest = [
            sorted((self.gang[row][k], row) for row, p in enumerate(rows) if runs[p][k])
            for k in range(width)
        ]
        """accelerators → (gang, row) of those that can use it, ascending"""
        self._preferred: dict[int, list[int]] = {}

    def preferred_accelerators(self, snap: Snapshot) -> list[list[int]]:
        """Return jobs → accelerators that it can use: where it runs already, then the fastest."""
        width = len(snap.capacity)
        place = snap.profile * (width + 1) + np.where(snap.on >= 0, snap.on, width)
        codes: list[int] = place.tolist()
        new = sorted(set(codes).difference(self._preferred))
        if new:
            used = np.array(new)
            speed = snap.profiles.speed[used // (width + 1)]
            # Where a job runs already it stays, if there is room.
            stays = (used % (width + 1))[:, None] == np.arange(width)
            order = (-(speed + speed * stays)).argsort(1)
            for code, accelerators, runs in zip(
                new, order.tolist(), (speed > 0).tolist(), strict=True
            ):
                self._preferred[code] = [k for k in accelerators if runs[k]]
        return [self._preferred[code] for code in codes]


class _LastQuantum:
    """The last quantum of one planner: its jobs, and its winners if no ticket was drawn."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._jobs: _Jobs | None = None
        self._on = b""
        self._wanted: IntArray | None = None

    def jobs_of(self, snap: Snapshot) -> _Jobs:
        """Return the properties of the snapshot's jobs, computed again if anything changed."""
        key = (
            *(snap.job.tobytes(), snap.profile.tobytes(), snap.capacity.tobytes()),
            *(snap.profiles.content, snap.profiles.tenant.tobytes(), snap.tenants),
        )
        if self._jobs is None or key != self._key:
            self._key, self._jobs, self._wanted = key, _Jobs(snap), None
        return self._jobs

    def repeated(self, snap: Snapshot) -> IntArray | None:
        """Return jobs → accelerator if the same jobs still run in the same places, else None."""
        return self._wanted if snap.on.tobytes() == self._on else None

    def note(self, snap: Snapshot, wanted: IntArray) -> None:
        """Keep the winners of a quantum in which no ticket was drawn and no win waited."""
        self._on, self._wanted = snap.on.tobytes(), wanted


class _Draws:
    """One quantum's draws under way."""

    def __init__(self, snap: Snapshot, jobs: _Jobs, seed: int, draws: int) -> None:
        self._snap, self._jobs, self._start, self.draws = snap, jobs, _mixed(seed), draws
        self._free: list[int] = snap.capacity.tolist()
        self._accelerators = jobs.preferred_accelerators(snap)
        self._waits = [True] * len(snap.job)
        self._first = [0] * len(self._free)
        """accelerators → place in ``smallest`` before which no job waits"""
        self.wanted = [ABSENT] * len(snap.job)

    def draw_with_queue(self, queue: IntArray) -> IntArray:
        """Honour wins and draw from all tickets each time; return the wins that still wait."""
        jobs = self._jobs
        if self._place_if_all_fit(jobs.always):
            queue = queue[np.array(self._waits, dtype=bool)[queue]]
        queue = self._without_honoured(queue)
        room = (jobs.room - np.bincount(jobs.usable[queue], minlength=len(jobs.room))).tolist()
        wins: list[int] = []
        blanks = 0
        usable_by: list[int] = jobs.usable.tolist()
        any_fits = self._any_fits()
        while any_fits:
            row = (
                self._drawn(jobs.odds) if blanks < _MAX_VOID_DRAWS else self._draw_among_fitting()
            )
            usable = usable_by[row]
            if self._run(row):
                blanks = 0
                any_fits = self._any_fits()
            elif room[usable] > 0:
                room[usable] -= 1
                wins.append(row)
            else:
                blanks += 1
        return np.concatenate([queue, np.array(wins, dtype=np.int64)]) if wins else queue

    def _without_honoured(self, queue: IntArray) -> IntArray:
        """Run the queued jobs that fit, in order; return the wins that still wait."""
        honoured: list[int] = []
        waits = self._waits
        for place, row in enumerate(queue.tolist()):
            if waits[row] and self._run(row):
                honoured.append(place)
                if not any(self._free):
                    break
        return np.delete(queue, honoured) if honoured else queue

    def draw_without_queue(self) -> None:
        """Draw from the tickets not drawn yet, and drop jobs that do not fit."""
        left = list(range(len(self._waits)))
        tickets: list[float] = tickets_per_device(self._snap).tolist()
        while left and self._any_fits():
            row = left.pop(self._drawn(list(accumulate(tickets[row] for row in left))))
            if not self._run(row):
                self._waits[row] = False

    def _any_fits(self) -> bool:
        if not any(self._free):
            return False
        waits, first = self._waits, self._first
        for k, (free, smallest) in enumerate(zip(self._free, self._jobs.smallest, strict=True)):
            place = first[k]
            while place < len(smallest) and not waits[smallest[place][1]]:
                place += 1
            first[k] = place
            if place < len(smallest) and smallest[place][0] <= free:
                return True
        return False

    def _place(self, row: int) -> int:
        gang, free = self._jobs.gang[row], self._free
        for accelerator in self._accelerators[row]:
            if free[accelerator] >= gang[accelerator]:
                return accelerator
        return ABSENT

    def _place_if_all_fit(self, rows: list[int]) -> bool:
        """Run these jobs if all fit at once, else none of them."""
        free = list(self._free)
        for row in rows:
            if not self._run(row):
                self._free = free
                self._waits = [True] * len(self._waits)
                self.wanted = [ABSENT] * len(self.wanted)
                return False
        return True

    def _run(self, row: int) -> bool:
        if not self._waits[row]:
            return False
        accelerator = self._place(row)
        if accelerator == ABSENT:
            return False
        self._waits[row] = False
        self._free[accelerator] -= self._jobs.gang[row][accelerator]
        self.wanted[row] = accelerator
        return True

    def _drawn(self, odds: list[float]) -> int:
        return min(bisect_right(odds, self._uniform() * odds[-1]), len(odds) - 1)

    def _draw_among_fitting(self) -> int:
        waiting = (row for row, waits in enumerate(self._waits) if waits)
        rows = [row for row in waiting if self._place(row) != ABSENT]
        time = self._jobs.time
        return rows[self._drawn(list(accumulate(float(time[row]) for row in rows)))]

    def _uniform(self) -> float:
        self.draws += 1
        return _mixed(self._start ^ self.draws) / (_64_BITS + 1)


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
