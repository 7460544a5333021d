"""Rounds that realise the shares of units of one or more jobs (Gavel §3.2, §5, Algorithm 1)."""

from dataclasses import dataclass, replace

import numpy as np

from fairlead.mechanisms._rounds.candidates import CandidateEntries
from fairlead.mechanisms._rounds.selection import RoundSelection
from fairlead.mechanisms._rounds.share_rounds import ShareMechanism
from fairlead.mechanisms._rounds.unit_deficits import UnitAccount
from fairlead.mechanisms._rounds.unit_selection import UnitSelection, rows_of_units
from fairlead.mechanisms._rounds.urgency import full_time_first, urgent_entries
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.lease import Placements
from fairlead.model.plan import ABSENT, Plan
from fairlead.model.snapshot import Snapshot
from fairlead.placement import plan_unit_moves
from fairlead.policies.base import WarmStart, allocate


@dataclass(frozen=True)
class Units(ShareMechanism):
    """Run in each round the units to which time is owed most urgently, each job in one of them.

    A unit is one job or several that share devices. Time owed is counted as for jobs alone
    (``shares``), for every unit on its own. Devices that no share claims, or that fall idle in
    mid-round, go to waiting jobs alone, unless the policy leaves them idle on purpose.
    """

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
            allocation = allocate(self.policy, snap, warm)
            account = account.with_new_shares(allocation, snap, carry_s=self.round_s)
        members = rows_of_units(account.packed, snap.job)
        wanted, ran = self._choose(snap, account, members)
        units = members[list(wanted)].tolist()
        until = snap.starts_at + self.round_s
        stop, start = plan_unit_moves(snap, units, list(wanted.values()))
        return Plan(stop, start, until, until, stale), replace(account, ran=ran)

    def refill(self, snap: Snapshot, memory: UnitAccount, idle: IntArray) -> Placements:
        """Return waiting jobs for the idle devices: first those to which time is owed there."""
        account = memory.advanced_to(snap)
        choice = RoundSelection.for_waiting(snap, idle)
        choice.assign(urgent_entries(account.tables[:, : len(snap.job)], self.round_s))
        if any(choice.free) and self.capabilities.fills_idle:
            choice.fill(snap.speed, _sums_of_jobs(account, account.owed_s))
        return choice.placed(snap, idle)

    def _choose(
        self, snap: Snapshot, account: UnitAccount, members: IntArray
    ) -> tuple[dict[int, int], IntArray]:
        """Return units → accelerator of those that run, and jobs → unit it runs in."""
        n = len(snap.job)
        unit, column, weight = urgent_entries(account.tables, self.round_s)
        inside = members[unit]
        there = (inside >= 0) & (snap.on[inside] == column[:, None])
        weight += self.stay * there.sum(axis=1) / (inside >= 0).sum(axis=1)
        entries = CandidateEntries(unit, column, weight)
        if self.capabilities.full_time_first and not snap.profiles.single:
            total = _sums_of_jobs(account, account.share).sum(axis=1)[members]
            total = np.where(members >= 0, total, 0.0).max(axis=1)
            entries = full_time_first(entries, account.share, total)
        gang = snap.gang_sizes(inside[:, 0], column)
        choice = UnitSelection(members, gang, entries, snap.capacity.tolist(), n)
        choice.assign()
        wanted = choice.wanted
        ran = np.array(choice.unit_of[:-1], dtype=np.int64)
        if any(choice.free) and self.capabilities.fills_idle:
            alone = RoundSelection.for_jobs(snap, choice.free, ran >= 0)
            alone.fill(snap.speed, _sums_of_jobs(account, account.owed_s))
            rows = (alone.wanted >= 0).nonzero()[0]
            ran[rows] = rows
            wanted |= dict(zip(rows.tolist(), alone.wanted[rows].tolist(), strict=True))
        return wanted, ran


def _sums_of_jobs(account: UnitAccount, values: FloatArray) -> FloatArray:
    """Return jobs × accelerators → sum of these values over a job's units."""
    n = len(account.job)
    total = values[:n].copy()
    for members in account.packed.T:
        inside = members != ABSENT
        row = np.searchsorted(account.job, members[inside])
        np.add.at(total, row, values[n:][inside])
    return total
