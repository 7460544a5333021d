"""Rounds that realise time shares, shared by the mechanisms for jobs, units and tenants."""

from dataclasses import dataclass

from fairlead.mechanisms._rounds.candidates import CandidateEntries
from fairlead.mechanisms._rounds.deficits import Account
from fairlead.mechanisms._rounds.selection import RoundSelection
from fairlead.mechanisms._rounds.urgency import full_time_first, urgent_entries
from fairlead.model.arrays import IntArray
from fairlead.model.capabilities import Capabilities, capabilities_of
from fairlead.model.lease import Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.placement import plan_moves
from fairlead.policies.base import Policy, WarmStart


@dataclass(frozen=True)
class ShareMechanism:
    """The options of rounds that realise a policy's shares."""

    policy: Policy
    round_s: float = 360.0
    reallocate_s: float = 3600.0
    """seconds after which an allocation is renewed although only the progress of jobs changed"""
    stay: float = 0.5
    """extra urgency of running jobs over new ones: fewer preemptions, up to about 1"""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the policy."""
        return capabilities_of(self.policy)

    def _is_stale(self, snap: Snapshot, changes: int, solved_at: float) -> bool:
        """Return whether an allocation made at that time and count of changes is out of date."""
        return changes != snap.changes or (
            snap.starts_at - solved_at >= self.reallocate_s and self.capabilities.reads_progress
        )


@dataclass(frozen=True)
class JobShareRounds(ShareMechanism):
    """Rounds in which every job runs alone, by the time owed to it."""

    def initial(self) -> Account:
        """Return an account without jobs."""
        return Account.empty()

    def plan(self, snap: Snapshot, memory: Account) -> tuple[Plan, Account]:
        """Return the jobs to which most is owed, and the account after it."""
        return self.plan_warm(WarmStart(), snap, memory)

    def plan_warm(self, warm: WarmStart, snap: Snapshot, memory: Account) -> tuple[Plan, Account]:
        """Return the same, with the solver state that the planner keeps."""
        account = memory.advanced_to(snap)
        stale = self._is_stale(snap, account.changes, account.solved_at)
        if stale:
            account = account.with_new_shares(self.policy, snap, warm, carry_s=self.round_s)
        entries = urgent_entries(account.tables, self.round_s, snap.on, self.stay)
        choice = RoundSelection.for_jobs(snap, snap.capacity.tolist())
        self._choose(snap, account, choice, entries)
        until = snap.starts_at + self.round_s
        return Plan(*plan_moves(snap, choice.wanted), until, until, stale), account

    def refill(self, snap: Snapshot, memory: Account, idle: IntArray) -> Placements:
        """Return waiting jobs for the idle devices: first those to which time is owed there."""
        account = memory.advanced_to(snap)
        choice = RoundSelection.for_waiting(snap, idle)
        self._choose(snap, account, choice, urgent_entries(account.tables, self.round_s))
        return choice.placed(snap, idle)

    def _choose(
        self, snap: Snapshot, account: Account, choice: RoundSelection, entries: CandidateEntries
    ) -> None:
        """Select among the entries; devices that they leave free go to other jobs."""
        capabilities = self.capabilities
        if capabilities.full_time_first and choice.gang is not None:
            share = account.share
            entries = full_time_first(entries, share, share.sum(axis=1))
        choice.assign(entries)
        if not any(choice.free) or not capabilities.fills_idle:
            return
        choice.fill(snap.speed, account.owed_s)
        # Where gangs take turns, devices can be idle that are faster than others in use.
        if any(choice.free) and choice.gang is not None and choice.move_to_faster(snap.speed):
            choice.fill(snap.speed, account.owed_s)
