"""Rounds that realise the shares of units of one or more jobs (Gavel §3.2, §5, Algorithm 1)."""

from dataclasses import dataclass, field, replace

import numpy as np

from fairlead.mechanisms._rounds.candidates import CandidateEntries
from fairlead.mechanisms._rounds.selection import RoundSelection
from fairlead.mechanisms._rounds.share_rounds import (
    ShareMechanism,
    reserves_gangs,
    runs_ahead,
    time_left_s,
)
from fairlead.mechanisms._rounds.unit_deficits import UnitAccount
from fairlead.mechanisms._rounds.unit_selection import UnitSelection, rows_of_units
from fairlead.mechanisms._rounds.unpacked import without_packing
from fairlead.mechanisms._rounds.urgency import (
    full_time_first,
    last_to_end_first,
    shortest_first,
    urgent_entries,
)
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.lease import Placements
from fairlead.model.plan import ABSENT, Plan
from fairlead.model.snapshot import Snapshot
from fairlead.placement import plan_unit_moves
from fairlead.policies.base import Policy, WarmStart, allocate

_MIN_PACKING_GAIN = 0.05
"""least part of the makespan that packing has to save"""


@dataclass(frozen=True)
class Units(ShareMechanism):
    """Run in each round the units to which time is owed most urgently, each job in one of them.

    A unit is one job or several that share devices. Time owed is counted as for jobs alone
    (``shares``), for every unit on its own. Devices that no share claims, or that fall idle in
    mid-round, go to waiting jobs alone, unless the policy leaves them idle on purpose.
    """

    _unpacked: Policy | None = field(init=False, repr=False, compare=False)
    """the policy without packing, where its shares are compared with those of packed units"""

    def __post_init__(self) -> None:
        super().__post_init__()
        compares = self.capabilities.ends_early
        object.__setattr__(self, "_unpacked", without_packing(self.policy) if compares else None)

    def initial(self) -> UnitAccount:
        """Return an account without jobs."""
        return UnitAccount.empty()

    def plan(self, snap: Snapshot, memory: UnitAccount) -> tuple[Plan, UnitAccount]:
        """Return the units to which most is owed, and the account after it."""
        return self.plan_warm(WarmStart(), snap, memory)

    def plan_warm(
        self, warm: WarmStart, snap: Snapshot, memory: UnitAccount
    ) -> tuple[Plan, UnitAccount]:
        """Return the same, with the solver state that the planner keeps."""
        account = memory.advanced_to(snap)
        stale = self._is_stale(snap, account.changes, account.solved_at)
        if stale:
            account = account.with_new_shares(
                self._allocate(snap, warm), snap, carry_s=self.turn_s(snap)
            )
            if self._runs_gangs_alone(snap, account) and reserves_gangs(self.capabilities, snap):
                shares = self._reserved(snap, memory.job, account.share, memory.ends_at)
                account = account.with_reserved(*shares)
        members = rows_of_units(account.packed, snap.job)
        wanted, ran = self._choose(snap, account, members)
        units = members[list(wanted)].tolist()
        until = snap.starts_at + self.round_s
        stop, start = plan_unit_moves(snap, units, list(wanted.values()))
        return Plan(stop, start, until, until, stale), replace(account, ran=ran)

    def _allocate(self, snap: Snapshot, warm: WarmStart) -> Allocation:
        """Return the policy's shares; of jobs alone where gangs are packed for little gain.

        Rounds realise the shares of gangs better than those of units with gangs, which can cost
        more of the makespan than packing saves.
        """
        packed = allocate(self.policy, snap, warm)
        packed_s = packed.objective
        if self._unpacked is None or snap.profiles.single or packed_s is None:
            return packed
        alone = allocate(self._unpacked, snap, warm)
        alone_s = alone.objective
        assert alone_s is not None
        return packed if packed_s < alone_s * (1 - _MIN_PACKING_GAIN) else alone

    def _runs_gangs_alone(self, snap: Snapshot, account: UnitAccount) -> bool:
        """Return whether rounds are those of jobs alone, because packing gangs did not pay."""
        compares = self._unpacked is not None and not snap.profiles.single
        return compares and not len(account.packed)

    def refill(self, snap: Snapshot, memory: UnitAccount, idle: IntArray) -> Placements:
        """Return waiting jobs for the idle devices: first those to which time is owed there."""
        account = memory.advanced_to(snap)
        choice = RoundSelection.for_waiting(snap, idle)
        if self._runs_gangs_alone(snap, account):
            entries = self._entries_of_jobs(snap, account.tables)
            self._choose_jobs(snap, account.owed_s, choice, entries)
            return choice.placed(snap, idle)
        choice.assign(urgent_entries(account.tables[:, : len(snap.job)], self.turn_s(snap)))
        if any(choice.free) and self.capabilities.fills_idle:
            choice.fill(snap.speed, _sums_of_jobs(account, account.owed_s))
        return choice.placed(snap, idle)

    def _choose(
        self, snap: Snapshot, account: UnitAccount, members: IntArray
    ) -> tuple[dict[int, int], IntArray]:
        """Return units → accelerator of those that run, and jobs → unit it runs in."""
        n = len(snap.job)
        if self._runs_gangs_alone(snap, account):
            entries = self._entries_of_jobs(snap, account.tables, snap.on)
            jobs = RoundSelection.for_jobs(snap, snap.capacity.tolist())
            self._choose_jobs(snap, account.owed_s, jobs, entries)
            return _chosen_alone(jobs)
        entries = self._entries(snap, account, members)
        inside = members[entries.row]
        there = (inside >= 0) & (snap.on[inside] == entries.column[:, None])
        stay = self.stay_in_turn(self.turn_s(snap))
        entries.weight[:] += stay * there.sum(axis=1) / (inside >= 0).sum(axis=1)
        gang = snap.gang_sizes(inside[:, 0], entries.column)
        choice = UnitSelection(members, gang, entries, snap.capacity.tolist(), n)
        choice.assign()
        wanted = choice.wanted
        ran = np.array(choice.unit_of[:-1], dtype=np.int64)
        if any(choice.free) and self.capabilities.fills_idle:
            alone = RoundSelection.for_jobs(snap, choice.free, ran >= 0)
            alone.fill(snap.speed, _sums_of_jobs(account, account.owed_s))
            added, ran_alone = _chosen_alone(alone)
            wanted |= added
            ran = np.where(ran_alone >= 0, ran_alone, ran)
        return wanted, ran

    def _entries(
        self, snap: Snapshot, account: UnitAccount, members: IntArray
    ) -> CandidateEntries:
        """Return the entries of units that may run."""
        if not self.capabilities.ends_early:
            return urgent_entries(account.tables, self.turn_s(snap))
        held = _sums_of_jobs(account, account.share)
        total = np.where(members >= 0, held.sum(axis=1)[members], 0.0).max(axis=1)
        if runs_ahead(self.capabilities, snap):
            left_s = time_left_s(snap)
            least_s = np.where(members >= 0, left_s[members], np.inf).min(axis=1)
            entries = shortest_first(account.tables, self.round_s, least_s, total)
            if not len(account.packed):
                return entries
            return last_to_end_first(entries, members, held, left_s)
        entries = urgent_entries(account.tables, self.turn_s(snap))
        if snap.profiles.single:
            return entries
        return full_time_first(entries, account.share, total)


def _chosen_alone(choice: RoundSelection) -> tuple[dict[int, int], IntArray]:
    """Return units → accelerator of jobs that run alone, and jobs → unit it runs in."""
    rows = (choice.wanted >= 0).nonzero()[0]
    ran = np.full(len(choice.wanted), ABSENT)
    ran[rows] = rows
    return dict(zip(rows.tolist(), choice.wanted[rows].tolist(), strict=True)), ran


def _sums_of_jobs(account: UnitAccount, values: FloatArray) -> FloatArray:
    """Return jobs × accelerators → sum of these values over a job's units."""
    n = len(account.job)
    total = values[:n].copy()
    for members in account.packed.T:
        inside = members != ABSENT
        row = np.searchsorted(account.job, members[inside])
        np.add.at(total, row, values[n:][inside])
    return total
