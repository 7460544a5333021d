"""Lottery scheduling of gangs, with and without backfilling: Gandiva_fair's baselines (§3.1)."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import ClassVar, NamedTuple

import numpy as np

from fairlead.compiled import compiled
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
        if self.backfill:
            draws = _Draws(snap, jobs, self.seed, memory.draws)
            draws.draw_without_queue()
            quantum = _Quantum(draws.wanted_rows(), NO_INTS, draws.draws)
        else:
            at = np.searchsorted(snap.job, memory.queue)
            alive = np.append(snap.job, -1)[at] == memory.queue
            quantum = _drawn_quantum(snap, jobs, at[alive], self.seed, memory.draws)
        if may_repeat and quantum.draws == memory.draws:
            last.note(snap, quantum.wanted)
        plan = Plan(*plan_moves(snap, quantum.wanted), until, until)
        return plan, LotteryMemory(quantum.draws, snap.job[quantum.queue])


class _Quantum(NamedTuple):
    """The winners of a quantum."""

    wanted: IntArray
    """jobs → accelerator, -1 for none"""
    queue: IntArray
    """rows of the wins that still wait"""
    draws: int
    """tickets drawn so far"""


class _Jobs:
    """Properties of a snapshot's jobs that stay the same while none comes or ends."""

    def __init__(self, snap: Snapshot) -> None:
        profiles, width = snap.profiles, len(snap.capacity)
        used, self._profile = np.unique(snap.profile, return_inverse=True)
        speed = profiles.speed[used]
        gang_on = np.broadcast_to(profiles.gang_on[used], (len(used), width))
        runs, fits = speed > 0, (speed > 0) & (gang_on <= snap.capacity)
        self.gang: IntArray = gang_on.take(self._profile, axis=0)
        """jobs × accelerators → devices needed at once"""
        code: dict[bytes, int] = {}
        codes = [code.setdefault(row.tobytes(), len(code)) for row in fits]
        self.usable: IntArray = np.array(codes, dtype=np.int64)[self._profile]
        """jobs → number of the set of accelerators that it can use now"""
        self.room: IntArray = _MAX_QUEUED_WINS * np.bincount(self.usable, minlength=len(code))
        """sets of accelerators → wins that may queue"""
        self.time = entitled_time(snap, np.logical_or.reduce(fits, axis=1)[self._profile])
        self.odds: FloatArray = self.time.cumsum()
        always: list[int] = (self.time >= 1.0).nonzero()[0].tolist()
        least: list[int] = self.gang.min(axis=1, initial=_64_BITS >> 1).tolist()
        self.always = sorted(always, key=lambda row: -least[row])
        """jobs that are due all of the time, larger gangs first"""
        # Of those that cannot use an accelerator none is listed.
        size = np.where(runs, gang_on, _64_BITS >> 1).take(self._profile, axis=0).T
        order: IntArray = size.argsort(axis=1, kind="stable")
        listed = np.take_along_axis(size, order, axis=1) < _64_BITS >> 1
        self.smallest: IntArray = np.where(listed, order, ABSENT)
        """accelerators × places → row of a job that can use it, ascending by gang; then -1"""
        # Where a job runs already it stays, if there is room.
        stays = 1.0 + np.eye(width + 1, width)
        preferred: IntArray = (-(speed[:, None] * stays)).argsort(axis=2)
        can = np.take_along_axis(np.broadcast_to(runs[:, None], preferred.shape), preferred, 2)
        self._preferred: IntArray = np.where(can, preferred, ABSENT).reshape(-1, width)

    def preferred_accelerators(self, snap: Snapshot) -> IntArray:
        """Return jobs × places → accelerators that it can use, then -1.

        Where it runs already comes first, then the fastest.
        """
        width = len(snap.capacity)
        place = self._profile * (width + 1) + np.where(snap.on >= 0, snap.on, width)
        return self._preferred.take(place, axis=0)

    @cached_property
    def lists(self) -> "_Lists":
        """The same in lists."""
        return _Lists(
            *(self.gang.tolist(), self.usable.tolist(), self.odds.tolist()),
            [[row for row in rows if row >= 0] for rows in self.smallest.tolist()],
        )


class _Lists(NamedTuple):
    """Properties of jobs that draws look up one by one, as ``_Jobs`` explains."""

    gang: list[list[int]]
    usable: list[int]
    odds: list[float]
    smallest: list[list[int]]


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


def _drawn_quantum(
    snap: Snapshot, jobs: _Jobs, queue: IntArray, seed: int, draws: int
) -> _Quantum:
    """Return the winners after the wins in ``queue`` and new draws from all tickets."""
    if compiled is None:
        drawing = _Draws(snap, jobs, seed, draws)
        queue = drawing.draw_with_queue(queue)
        return _Quantum(drawing.wanted_rows(), queue, drawing.draws)
    count = len(snap.job)
    wanted = np.empty(count, dtype=np.int64)
    wins = np.empty(len(queue) + _MAX_QUEUED_WINS * count, dtype=np.int64)
    start = np.array([_mixed(seed)], dtype=np.uint64).view(np.int64)
    state = np.array([draws, start[0], 0], dtype=np.int64)
    compiled.draw_lottery(
        jobs.gang,
        jobs.preferred_accelerators(snap),
        jobs.smallest,
        jobs.usable,
        jobs.room,
        jobs.time,
        jobs.odds,
        np.array(jobs.always, dtype=np.int64),
        np.ascontiguousarray(snap.capacity),
        queue,
        state,
        wanted,
        wins,
    )
    return _Quantum(wanted, wins[: state[2]].copy(), int(state[0]))


class _Draws:
    """One quantum's draws under way."""

    def __init__(self, snap: Snapshot, jobs: _Jobs, seed: int, draws: int) -> None:
        self._snap, self._jobs, self._start, self.draws = snap, jobs, _mixed(seed), draws
        self._lists = jobs.lists
        self._free: list[int] = snap.capacity.tolist()
        self._accelerators: list[list[int]] = jobs.preferred_accelerators(snap).tolist()
        self._waits = [True] * len(snap.job)
        self._first = [0] * len(self._free)
        """accelerators → place in ``smallest`` before which no job waits"""
        self._wanted = [ABSENT] * len(snap.job)

    def wanted_rows(self) -> IntArray:
        """Return jobs → accelerator that it has won, -1 for none."""
        return np.array(self._wanted, dtype=np.int64)

    def draw_with_queue(self, queue: IntArray) -> IntArray:
        """Honour wins and draw from all tickets each time; return the wins that still wait."""
        jobs = self._jobs
        if self._place_if_all_fit(jobs.always):
            queue = queue[np.array(self._waits, dtype=bool)[queue]]
        queue = self._without_honoured(queue)
        room = (jobs.room - np.bincount(jobs.usable[queue], minlength=len(jobs.room))).tolist()
        wins: list[int] = []
        blanks = 0
        usable_by, odds = self._lists.usable, self._lists.odds
        any_fits = self._any_fits()
        while any_fits:
            row = self._drawn(odds) if blanks < _MAX_VOID_DRAWS else self._draw_among_fitting()
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
        waits, first, gang = self._waits, self._first, self._lists.gang
        for k, (free, smallest) in enumerate(zip(self._free, self._lists.smallest, strict=True)):
            place = first[k]
            while place < len(smallest) and not waits[smallest[place]]:
                place += 1
            first[k] = place
            if place < len(smallest) and gang[smallest[place]][k] <= free:
                return True
        return False

    def _place(self, row: int) -> int:
        gang, free = self._lists.gang[row], self._free
        for accelerator in self._accelerators[row]:
            if accelerator >= 0 and free[accelerator] >= gang[accelerator]:
                return accelerator
        return ABSENT

    def _place_if_all_fit(self, rows: list[int]) -> bool:
        """Run these jobs if all fit at once, else none of them."""
        free = list(self._free)
        for row in rows:
            if not self._run(row):
                self._free = free
                self._waits = [True] * len(self._waits)
                self._wanted = [ABSENT] * len(self._wanted)
                return False
        return True

    def _run(self, row: int) -> bool:
        if not self._waits[row]:
            return False
        accelerator = self._place(row)
        if accelerator == ABSENT:
            return False
        self._waits[row] = False
        self._free[accelerator] -= self._lists.gang[row][accelerator]
        self._wanted[row] = accelerator
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
