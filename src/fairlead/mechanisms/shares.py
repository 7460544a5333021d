"""Rounds that realise the shares of a policy (Gavel §3.2, §5), refilled as devices fall idle."""

from dataclasses import dataclass

import numpy as np

from fairlead.mechanisms.selection import assign, fill
from fairlead.model.arrays import NO_INTS, FloatArray, IntArray
from fairlead.model.errors import UsageError
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.placement import place
from fairlead.policies.base import Policy


@dataclass(frozen=True, slots=True, eq=False)
class Account:
    """What jobs were promised and what they had, as of the start of the last plan."""

    job: IntArray
    share: FloatArray
    """jobs × accelerators, the allocation in force"""
    owed_s: FloatArray
    """jobs × accelerators: time promised less time received since the allocation was made"""
    carried_s: FloatArray
    """jobs × accelerators: time still owed (or, below 0, taken early) from before it"""
    received_s: FloatArray
    starts_at: float
    solved_at: float
    changes: int
    """the snapshot's count of changes when the allocation was made"""


@dataclass(frozen=True)
class Shares:
    """Run in each round the jobs to which time is owed most urgently.

    Time owed grows with a job's share of an accelerator and falls with the time for which it
    holds devices of it, counted in seconds from the last allocation on. A job may run ahead of
    its share, or stay behind it, by up to one round. What was owed before a reallocation is
    carried along as a preference among those who may run, up to one round, except where the
    new share is 0. Devices that no share claims, or that fall idle in mid-round, go to waiting
    jobs.
    """

    policy: Policy
    round_s: float = 360.0
    reallocate_s: float = 3600.0
    """how long an allocation stands when nothing changes but the progress of jobs"""

    @property
    def reads_progress(self) -> bool:
        """Whether the policy looks at the steps that jobs have made."""
        return getattr(self.policy, "reads_progress", True)

    def initial(self) -> Account:
        """Return an account without jobs."""
        nothing = np.zeros((0, 1))
        return Account(NO_INTS, nothing, nothing, nothing, nothing, 0.0, -np.inf, -1)

    def plan(self, snap: Snapshot, memory: Account) -> tuple[Plan, Account]:
        """Return the units to which most is owed, and the account to go on from."""
        account = bring_forward(snap, memory)
        stale = account.changes != snap.changes or (
            self.reads_progress and snap.starts_at - account.solved_at >= self.reallocate_s
        )
        if stale:
            account = reallocate(self.policy, snap, account, carry_s=self.round_s)
        taken = [False] * len(snap.job)
        holds = self._choose(snap, account, snap.capacity.tolist(), taken, snap.usable)
        until = snap.starts_at + self.round_s
        return Plan(holds, until, until, stale), account

    def refill(self, snap: Snapshot, memory: Account, idle: IntArray) -> IntArray:
        """Return waiting jobs for the idle devices: first those to which time is owed there."""
        account = bring_forward(snap, memory)
        kinds = len(snap.capacity)
        free = np.bincount(snap.cluster.accelerator_of[idle], minlength=kinds).tolist()
        busy = np.zeros(len(snap.job) + 1, dtype=bool)
        busy[snap.holds] = True
        return self._choose(snap, account, free, busy[:-1].tolist(), idle)

    def _choose(
        self,
        snap: Snapshot,
        account: Account,
        free: list[int],
        taken: list[bool],
        devices: IntArray,
    ) -> IntArray:
        """Return lanes × devices → job for these devices, of which so many are free."""
        gang = snap.gang
        row, column, weight = urgent(account, self.round_s)
        if True in taken:
            waits = ~np.array(taken)[row]
            row, column, weight = row[waits], column[waits], weight[waits]
        rows, columns = assign(row, column, weight, gang, free, taken)
        if any(free):
            more = fill(snap.speed, gang, free, taken, account.owed_s.sum(axis=1))
            rows += more[0]
            columns += more[1]
        wanted = np.full(len(gang), -1, dtype=np.int64)
        wanted[rows] = columns
        return place(snap, devices, wanted)


def urgent(account: Account, round_s: float) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the (job, accelerator) entries that may run this round, and how urgent each is.

    In units of a round, let d be what would be owed at the round's end if the job did not run.
    Running it then leaves it d - 1 behind, so it may run only when d > 0 and must when d >= 1.
    Among those who may, the sooner they must the more urgent; a constant keeps it better to
    serve two than one. The constants were chosen by measured fidelity: docs/design/rounds.md.
    """
    row, column = account.share.nonzero()
    share = account.share[row, column]
    due = account.owed_s[row, column] / round_s + share
    may = due > 1e-9
    if np.count_nonzero(may) < len(may):
        row, column, share, due = row[may], column[may], share[may], due[may]
    rounds_left = np.ceil((1.0 - due) / share - 1e-9).clip(0.0, 20.0)
    weight = 3.0 + 1.5**-rounds_left + due + account.carried_s[row, column] / round_s
    weight[rounds_left == 0] += 3.0
    return row, column, weight


def bring_forward(snap: Snapshot, memory: Account) -> Account:
    """Return the account as it stands at the snapshot's start; new jobs are owed nothing."""
    received = snap.received_s
    if memory.job is snap.job or np.array_equal(memory.job, snap.job):
        share, owed, carried = memory.share, memory.owed_s, memory.carried_s
        before = memory.received_s
    else:
        at = np.searchsorted(memory.job, snap.job)
        known = at < len(memory.job)
        known[known] = memory.job[at[known]] == snap.job[known]
        at = at[known]
        share, owed, carried = np.zeros((3, *received.shape))
        before = received.copy()
        share[known] = memory.share[at]
        owed[known] = memory.owed_s[at]
        carried[known] = memory.carried_s[at]
        before[known] = memory.received_s[at]
    owed = owed + share * (snap.starts_at - memory.starts_at) - (received - before)
    return Account(
        snap.job, share, owed, carried, received, snap.starts_at, memory.solved_at, memory.changes
    )


def reallocate(policy: Policy, snap: Snapshot, account: Account, *, carry_s: float) -> Account:
    """Return the account under new shares, nothing owed; up to ``carry_s`` is carried along."""
    allocation = policy.allocate(snap)
    if allocation.rows != "jobs" or allocation.measure != "time":
        raise UsageError(
            f"this mechanism realises time shares of jobs, not"
            f" {allocation.measure} of {allocation.rows}"
        )
    share = allocation.share
    debt = (account.carried_s + account.owed_s).clip(-carry_s, carry_s)
    return Account(
        snap.job,
        share,
        np.zeros_like(share),
        np.where(share > 0, debt, 0.0),
        account.received_s,
        account.starts_at,
        snap.starts_at,
        snap.changes,
    )
