"""Time owed to jobs: the memory of mechanisms that realise shares."""

from dataclasses import field, replace

import numpy as np

from fairlead.compiled import compiled
from fairlead.mechanisms._rounds.equal_accelerators import keep_in_place
from fairlead.model.arrays import NO_INTS, FloatArray, IntArray
from fairlead.model.errors import UsageError
from fairlead.model.job import OMIT_IF_EMPTY
from fairlead.model.snapshot import Snapshot
from fairlead.model.value import value
from fairlead.policies.base import Policy, WarmStart, allocate

LEAST_DUE = 1e-9
"""rounds due from which on a row may run"""
_TABLES = SHARE, OWED, CARRIED, RECEIVED = range(4)
_DEBT_OVER_ADVANCE = 4.0
"""most debt over most advance that a reallocation carries over where progress counts"""


@value
class Account:
    """The current allocation and the time owed to each job, as of the last plan's start.

    ``tables`` holds four tables of jobs × accelerators side by side, so that one operation
    brings all of them into a new order of jobs.
    """

    job: IntArray
    tables: FloatArray
    starts_at: float
    solved_at: float
    changes: int
    """the snapshot's count of changes when the allocation was made"""
    by_value: bool = field(default=False, metadata=OMIT_IF_EMPTY)
    """the policy's values (``ValuesDevices``), not the time owed, order jobs for devices that no
    share claims; False in logs of earlier versions, which are replayed so"""
    ends_at: float = field(default=0.0, metadata=OMIT_IF_EMPTY)
    """end that is aimed at where devices are reserved for long gangs; 0 where none are"""

    @classmethod
    def empty(cls) -> "Account":
        """Return an account without jobs."""
        return cls(NO_INTS, np.zeros((len(_TABLES), 0, 1)), 0.0, -np.inf, -1)

    @property
    def share(self) -> FloatArray:
        """jobs × accelerators → share of time."""
        share: FloatArray = self.tables[SHARE]
        return share

    @property
    def owed_s(self) -> FloatArray:
        """jobs × accelerators → time promised less time received since the allocation was made."""
        owed: FloatArray = self.tables[OWED]
        return owed

    def advanced_to(self, snap: Snapshot) -> "Account":
        """Return the account as it stands at the snapshot's start; new jobs are owed nothing."""
        if compiled is not None:
            tables = np.empty((len(_TABLES), *snap.received_s.shape))
            elapsed_s = snap.starts_at - self.starts_at
            compiled.forward(self.job, self.tables, elapsed_s, snap.job, snap.received_s, tables)
            return self._with_tables(snap, tables)
        tables = self._in_order_of(snap)
        owed, received = tables[OWED], tables[RECEIVED]
        owed += tables[SHARE] * (snap.starts_at - self.starts_at)
        owed += received
        owed -= snap.received_s
        received[...] = snap.received_s
        return self._with_tables(snap, tables)

    def after_rounds(
        self, on: IntArray, starts_at: FloatArray, received_s: FloatArray, turn_s: float
    ) -> "tuple[int, Account]":
        """Return in how many of the rounds all of the shares may run, and the account after these.

        ``on`` is jobs → accelerator, -1 for none; its entries are all that have shares.
        ``received_s`` is rounds × running jobs × accelerators. It does the same as ``advanced_to``
        and ``urgent_entries`` in each of the rounds, for the few entries that change.
        """
        row = (on >= 0).nonzero()[0]
        column = on[row]
        share, owed, _, received = self.tables[:, row, column]
        at, count = self.starts_at, 0
        by_round = received_s[:, np.arange(len(row)), column]
        for next_at, then in zip(starts_at.tolist(), by_round, strict=True):
            after = owed + share * (next_at - at)
            after += received
            after -= then
            if not (after / turn_s + share > LEAST_DUE).all():
                break
            owed, received, at, count = after, then, next_at, count + 1
        tables = self.tables.copy()
        tables[OWED, row, column], tables[RECEIVED, row, column] = owed, received
        return count, replace(self, tables=tables, starts_at=at)

    def stands_still_but(self, on: IntArray) -> bool:
        """Return whether rounds change nothing that is owed, but for the jobs' entries ``on``.

        So it is where those have all the shares. Time received cancels out except for rounding.
        """
        row = (on >= 0).nonzero()[0]
        share, owed, _, received = self.tables
        if np.count_nonzero(share) != np.count_nonzero(share[row, on[row]]):
            return False
        same = owed + received - received == owed
        same[row, on[row]] = True
        return bool(same.all() and share[row, on[row]].all())

    def _with_tables(self, snap: Snapshot, tables: FloatArray) -> "Account":
        return Account(
            snap.job,
            tables,
            snap.starts_at,
            self.solved_at,
            self.changes,
            self.by_value,
            self.ends_at,
        )

    def _in_order_of(self, snap: Snapshot) -> FloatArray:
        if not len(self.job):
            tables = np.zeros((len(_TABLES), *snap.received_s.shape))
            tables[RECEIVED] = snap.received_s
            return tables
        at = np.minimum(self.job.searchsorted(snap.job), len(self.job) - 1)
        tables = self.tables.take(at, axis=1)
        new = (self.job[at] != snap.job).nonzero()[0]
        if len(new):
            tables[:, new] = 0.0
            tables[RECEIVED, new] = snap.received_s[new]
        return tables

    def with_new_shares(
        self,
        policy: Policy,
        snap: Snapshot,
        warm: WarmStart,
        *,
        carry_s: float | FloatArray,
        by_value: bool = False,
        relative: FloatArray | None = None,
    ) -> "Account":
        """Return the account under new shares, nothing owed; up to ``carry_s`` is carried over.

        It is one limit for all, or jobs → limit. ``relative`` is jobs × accelerators → speed
        over the greatest, where progress counts on any accelerator.
        """
        allocation = allocate(policy, snap, warm)
        if allocation.rows != "jobs" or allocation.measure != "time":
            raise UsageError(
                f"mechanism: it realises time shares of jobs, not {allocation.measure} of"
                f" {allocation.rows}: leave out --mechanism"
            )
        if allocation.share.shape != snap.received_s.shape:
            raise UsageError(
                "this mechanism runs every job alone and consolidated where it can; packed jobs"
                " and shares of placements need --mechanism units"
            )
        share = keep_in_place(snap, allocation.share)
        tables = (
            self._with(share, carry_s)
            if relative is None
            else self._with_progress(share, carry_s, relative)
        )
        return Account(
            snap.job,
            tables,
            self.starts_at,
            snap.starts_at,
            snap.changes,
            by_value,
        )

    def with_reserved(self, share: FloatArray, ends_at: float) -> "Account":
        """Return the account under shares that reserve devices for long gangs."""
        tables = self.tables.copy()
        tables[SHARE] = share
        return replace(self, tables=tables, ends_at=ends_at)

    def _with(self, share: FloatArray, carry_s: float | FloatArray) -> FloatArray:
        if isinstance(carry_s, np.ndarray):
            carry_s = carry_s[:, None]
        elif compiled is not None:
            tables = np.empty_like(self.tables)
            compiled.reallocated(self.tables, np.ascontiguousarray(share), carry_s, tables)
            return tables
        tables = self.tables.copy()
        tables[SHARE] = share
        debt = tables[CARRIED]
        debt += tables[OWED]
        np.minimum(debt, carry_s, out=debt)
        np.maximum(debt, -carry_s, out=debt)
        np.putmask(debt, share <= 0, 0.0)
        tables[OWED] = 0.0
        return tables

    def _with_progress(
        self, share: FloatArray, carry_s: float | FloatArray, relative: FloatArray
    ) -> FloatArray:
        """Return the tables under new shares; a job's debts count together, where it is fastest.

        A debt counts for longer than an advance, which came from devices that were idle.
        """
        tables = self.tables.copy()
        tables[SHARE] = share
        debt = ((tables[CARRIED] + tables[OWED]) * relative).sum(axis=1)
        tables[OWED : CARRIED + 1] = 0.0
        rows = np.arange(len(debt))
        tables[CARRIED][rows, relative.argmax(axis=1)] = np.clip(
            debt, -np.asarray(carry_s), _DEBT_OVER_ADVANCE * np.asarray(carry_s)
        )
        return tables
