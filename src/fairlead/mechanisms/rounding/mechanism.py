"""OEF's placement: devices of tenants in rounds of whole devices (OEF §4.3, §4.4)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from fairlead.mechanisms._rounds.selection import RoundSelection
from fairlead.mechanisms._rounds.tenant_jobs import job_rows
from fairlead.mechanisms.rounding.apportionment import Apportionment
from fairlead.mechanisms.rounding.memory import Deviations
from fairlead.mechanisms.rounding.placement import place_round, place_single
from fairlead.mechanisms.rounding.spanning_gangs import span_idle, span_own
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.capabilities import Capabilities, capabilities_of
from fairlead.model.errors import UsageError
from fairlead.model.lease import NO_PLACEMENTS, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import Policy, WarmStart

_SPANS = ("never", "idle", "own")


@dataclass(frozen=True)
class Rounding:
    """Give tenants whole devices, so that over time they have what the policy divides.

    The deviation of every tenant and accelerator is carried from round to round, and the
    tenant that would first fall behind by more than a gang is served first. Within a tenant the
    job that has gone longest without service comes first. Gangs sit on one node where they can.
    """

    policy: Policy
    round_s: float = 300.0
    reallocate_s: float = 3600.0
    """seconds after which an allocation is renewed although only the progress of jobs changed"""
    spans: str = "idle"
    """gangs that may span accelerators, at the speed of the slowest member: none (never); those
    that would else wait beside idle devices (idle); or, as in the paper, those for which their
    tenant has enough devices, but of several accelerators (own)"""
    _shares: Policy = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.spans not in _SPANS:
            raise UsageError(f"spans={self.spans!r} is not one of {', '.join(_SPANS)}")
        object.__setattr__(self, "_shares", job_rows(self.policy))

    @cached_property
    def capabilities(self) -> Capabilities:
        """Those of the policy; and no job starves."""
        return replace(capabilities_of(self._shares), starvation_free=True)

    def initial(self) -> Deviations:
        """Return a memory without tenants."""
        return Deviations.empty()

    def plan(self, snap: Snapshot, memory: Deviations) -> tuple[Plan, Deviations]:
        """Return the round's gangs, and the deviations after it."""
        return self.plan_warm(WarmStart(), snap, memory)

    def plan_warm(
        self, warm: WarmStart, snap: Snapshot, memory: Deviations
    ) -> tuple[Plan, Deviations]:
        """Return the same, with the solver state that the planner keeps."""
        memory = memory.advanced_to(snap, self.round_s)
        stale = memory.changes != snap.changes or (
            snap.starts_at - memory.solved_at >= self.reallocate_s
            and self.capabilities.reads_progress
        )
        if stale:
            memory = memory.with_new_shares(self._shares, snap, warm)
        round_ = _new_round(snap, memory)
        wanted, spans = self._choose(snap, memory, round_)
        if snap.profiles.single:
            stop, start, rows = place_single(snap, wanted)
            placed = memory.placed_single(rows, wanted[rows])
        else:
            stop, start, goal = place_round(snap, wanted, spans)
            placed = memory.placed(snap, goal)
        until = snap.starts_at + self.round_s
        memory = memory.with_round(round_.due, snap, placed)
        return Plan(stop, start, until, until, stale), memory

    def refill(self, snap: Snapshot, memory: Deviations, idle: IntArray) -> Placements:
        """Return waiting jobs for the idle devices: first those of tenants that had them.

        A device given to a tenant belongs to it until the round ends. Devices that its jobs do not
        use go to others, first to those with the largest debt there, and are not counted for them.
        """
        busy = np.zeros(len(snap.job) + 1, dtype=bool)
        busy[snap.holds] = True
        waits = (~busy[:-1]).nonzero()[0]
        free = np.bincount(snap.cluster.accelerator_of[idle], minlength=len(snap.capacity))
        at, column = ((snap.speed[waits] > 0) & (free > 0)).nonzero()
        if not len(at):
            return NO_PLACEMENTS
        lacks, owed = memory.given_and_owed(snap)
        row = waits[at]
        tenant = snap.tenant[row]
        keys = (
            row,
            -waiting_s(snap, memory.last_served(snap))[row],
            -owed[tenant, column],
            lacks[tenant, column] <= 0,
            priority_ranks(snap)[row],
        )
        order = np.lexsort(keys)
        choice = RoundSelection.of(snap.gang, free.tolist())
        choice.pick(row[order], column[order])
        return choice.placed(snap, idle)

    def _choose(
        self, snap: Snapshot, memory: Deviations, round_: Apportionment
    ) -> tuple[IntArray, dict[int, dict[int, int]]]:
        """Return rows → accelerator, -1 for none, and the gangs that span several."""
        rank = priority_ranks(snap)
        first = np.full(len(memory.name), np.inf)
        np.minimum.at(first, memory.member, rank)
        spans: dict[int, dict[int, int]] = {}
        if self.spans == "own":
            spans = span_own(round_)
        else:
            round_.serve()
        round_.fill(memory.gain, first.tolist())
        wanted = _assign_with_few_moves(snap, round_.picked)
        for row in [row for row, counts in spans.items() if len(counts) == 1]:
            wanted[row] = next(iter(spans.pop(row)))
        if self.spans == "idle" and not snap.profiles.single and any(round_.free):
            rows = np.array([row for waiting in round_.waiting for row in waiting], dtype=int)
            order = np.lexsort((rows, memory.served_at[rows], rank[rows]))
            spans = span_idle(snap, round_.free, rows[order].tolist())
        return wanted, spans


def _new_round(snap: Snapshot, memory: Deviations) -> Apportionment:
    """Return the round with everything still to be given."""
    member, count, gang = memory.member, len(memory.name), memory.gang.tolist()
    # Longest without service first (OEF §6.1.3), or in order of arrival.
    turn = -waiting_s(snap, memory.served_at)
    first_come = [tenant.inner == "fifo" for tenant in snap.tenants]
    if any(first_come):
        turn[np.array(first_come)[np.minimum(snap.tenant, len(first_come) - 1)]] = 0.0
    keys = [snap.arrival_at, turn, member]
    if snap.priority.any():
        keys.insert(2, -snap.priority)
    rows = np.lexsort(keys).tolist()  # equal ones stay in order of submission
    ends = np.bincount(member, minlength=count).cumsum().tolist()
    here = np.zeros(memory.ideal.shape, dtype=bool)
    runs = (snap.on >= 0).nonzero()[0]
    here[member[runs], snap.on[runs]] = True
    return Apportionment(
        due=memory.dev + memory.ideal,
        ideal=memory.ideal,
        gang=gang,
        missed=memory.missed,
        early=_with_unequal_gangs(memory, gang),
        here=here,
        waiting=[rows[a:b][::-1] for a, b in zip([0, *ends], ends, strict=False)],
        free=snap.capacity.tolist(),
    )


def _with_unequal_gangs(memory: Deviations, gang: list[int]) -> list[bool]:
    """Return accelerators → whether virtual tenants of several gangs can run there."""
    if len(set(gang)) < 2:
        return [False] * memory.gain.shape[1]
    return [len(np.unique(memory.gang[can])) > 1 for can in memory.gain.T > 0]


def waiting_s(snap: Snapshot, served_at: FloatArray) -> FloatArray:
    """Return jobs → seconds without service, times the job's weight."""
    return (snap.starts_at - served_at) * snap.weight


def priority_ranks(snap: Snapshot) -> FloatArray:
    """Return jobs → place of its priority, 0 for the highest."""
    by_tenant = np.array([tenant.priority for tenant in snap.tenants] or [0])
    if not by_tenant.any() and not snap.precedence.any():
        return np.zeros(len(snap.job))
    key = np.column_stack([-by_tenant[snap.tenant], -snap.precedence])
    rank = np.unique(key, axis=0, return_inverse=True)[1]
    return rank.ravel().astype(float)


def _assign_with_few_moves(snap: Snapshot, picked: Sequence[tuple[int, int, int]]) -> IntArray:
    """Return rows → accelerator, -1 for none, with as few moves as possible.

    Jobs of one virtual tenant can stand in for one another, so a job that already runs on one of
    the accelerators that they were given stays there.
    """
    wanted, on = [-1] * len(snap.job), snap.on.tolist()
    places: dict[int, list[int]] = {i: [] for i, _, _ in picked}
    for i, _, j in picked:
        places[i].append(j)
    movers = []
    for i, row, _ in picked:
        if on[row] in places[i]:
            places[i].remove(on[row])
            wanted[row] = on[row]
        else:
            movers.append((i, row))
    for i, row in movers:
        wanted[row] = places[i].pop(0)
    return np.array(wanted, dtype=np.int64)
