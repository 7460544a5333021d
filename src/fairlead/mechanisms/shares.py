"""Rounds that realise the shares of a policy (Gavel §3.2, §5), refilled as devices fall idle."""

from dataclasses import dataclass

import numpy as np

from fairlead.compiled import compiled
from fairlead.mechanisms._rounds.candidates import CandidateEntries
from fairlead.mechanisms._rounds.deficits import (
    CARRIED,
    OWED,
    SHARE,
    Account,
)
from fairlead.mechanisms._rounds.selection import Choice
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.lease import Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.placement import move
from fairlead.policies.base import Policy, WarmStart

_SOON = np.array([7.0, *(3.0 + 1.3**-n for n in range(1, 24))])
"""urgency by the number of rounds until a job must run; a table, so that every machine agrees"""
_SOMEWHERE = 1.0
"""how much more urgent a job is on any accelerator if it must run on one of several"""


@dataclass(frozen=True)
class ShareMechanism:
    """The options of rounds that realise a policy's shares."""

    policy: Policy
    round_s: float = 360.0
    reallocate_s: float = 3600.0
    """how long an allocation stands when nothing changes but the progress of jobs"""
    stay: float = 0.5
    """how much more urgent it is to go on than to start: fewer preemptions, up to about 1"""

    @property
    def reads_progress(self) -> bool:
        """Whether the policy looks at the steps that jobs have made."""
        return getattr(self.policy, "reads_progress", True)

    @property
    def takes_alternatives(self) -> bool:
        """Whether a job may need other numbers of devices on other accelerators."""
        return getattr(self.policy, "takes_alternatives", False)

    def _is_stale(self, snap: Snapshot, changes: int, solved_at: float) -> bool:
        """Tell whether an allocation made after so many changes, at that time, is out of date."""
        return changes != snap.changes or (
            self.reads_progress and snap.starts_at - solved_at >= self.reallocate_s
        )


@dataclass(frozen=True)
class Shares(ShareMechanism):
    """Run in each round the jobs to which time is owed most urgently.

    Time owed grows with a job's share of an accelerator and falls with the time for which it
    holds devices of it, counted in seconds from the last allocation on. A job may run ahead of
    its share by up to one round; it seldom stays behind by more. What was owed before a
    reallocation is carried along as a preference among those who may run, up to one round,
    except where the new share is 0. Devices that no share claims, or that fall idle in
    mid-round, go to waiting jobs, unless the policy leaves them idle on purpose.
    """

    def initial(self) -> Account:
        """Return an account without jobs."""
        return Account.empty()

    def plan(self, snap: Snapshot, memory: Account) -> tuple[Plan, Account]:
        """Return the units to which most is owed, and the account to go on from."""
        return self.plan_warm(WarmStart(), snap, memory)

    def plan_warm(self, warm: WarmStart, snap: Snapshot, memory: Account) -> tuple[Plan, Account]:
        """Return the same, with the solver state that the planner keeps."""
        account = memory.brought_forward(snap)
        stale = self._is_stale(snap, account.changes, account.solved_at)
        if stale:
            account = account.reallocated(self.policy, snap, warm, carry_s=self.round_s)
        entries = urgent(account.tables, self.round_s, snap.on, self.stay)
        choice = Choice.for_jobs(snap, snap.capacity.tolist())
        self._choose(snap, account, choice, entries)
        until = snap.starts_at + self.round_s
        return Plan(*move(snap, choice.wanted), until, until, stale), account

    def refill(self, snap: Snapshot, memory: Account, idle: IntArray) -> Placements:
        """Return waiting jobs for the idle devices: first those to which time is owed there."""
        account = memory.brought_forward(snap)
        choice = Choice.for_waiting(snap, idle)
        self._choose(snap, account, choice, urgent(account.tables, self.round_s))
        return choice.placed(snap, idle)

    def _choose(
        self, snap: Snapshot, account: Account, choice: Choice, entries: CandidateEntries
    ) -> None:
        """Choose among the entries; what they leave free goes to others."""
        choice.assign(entries)
        if any(choice.free) and fills_idle(self.policy):
            choice.fill(snap.speed, account.owed_s)


def fills_idle(policy: Policy) -> bool:
    """Tell whether devices that no share claims go to waiting jobs all the same."""
    return getattr(policy, "fills_idle", True)


def urgent(
    tables: FloatArray, round_s: float, on: IntArray | None = None, stay: float = 0.0
) -> CandidateEntries:
    """Return the (row, accelerator) entries that may run this round, and how urgent each is.

    ``tables`` are those of an account, for jobs or for units. In units of a round, let d be what
    would be owed at the round's end if the row did not run. Running it then leaves it d - 1
    behind, so it may run only when d > 0 and must when d >= 1. Among those who may, the sooner
    they must the more urgent; a constant keeps it better to serve two than one. A row that is
    owed a round on all of its accelerators together must run on one of them. The constants were
    chosen by measured fidelity: docs/design/rounds.md.
    """
    if compiled is not None:
        _, rows, width = tables.shape
        size = rows * width
        row, column, weight = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size)
        tables = np.ascontiguousarray(tables)
        n = compiled.urgent(
            tables, rows, round_s, _SOON, _SOMEWHERE, on, stay, row, column, weight
        )
        return CandidateEntries(row[:n], column[:n], weight[:n])
    at = tables[SHARE].ravel().nonzero()[0]
    entry = tables[: CARRIED + 1].reshape(CARRIED + 1, -1).take(at, axis=1)
    entry[OWED:] /= round_s
    share, due, weight = entry
    due += share
    rounds_left = 1.0 - due
    rounds_left /= share
    rounds_left += 1.0 - 1e-9  # what is cut off next makes this a ceiling
    weight += due
    weight += _SOON.take(rounds_left.astype(np.int64), mode="clip")
    row = at // tables.shape[2]
    column = at - row * tables.shape[2]
    if np.count_nonzero(row[1:] == row[:-1]):
        several = np.bincount(row) > 1
        somewhere = several & (np.bincount(row, due) >= 1.0 - 1e-9)
        weight[somewhere[row]] += _SOMEWHERE
    if on is not None:
        weight[on[row] == column] += stay
    may = due > 1e-9
    return CandidateEntries(row, column, weight).where(may)
