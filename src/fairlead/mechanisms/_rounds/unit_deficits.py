"""Time owed to units: the memory of rounds with packed jobs."""

from dataclasses import dataclass, field, replace

import numpy as np

from fairlead.mechanisms._rounds.deficits import CARRIED, OWED, SHARE
from fairlead.mechanisms._rounds.equal_accelerators import keep_in_place
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import NO_INTS, FloatArray, IntArray, is_among
from fairlead.model.errors import UsageError
from fairlead.model.job import OMIT_IF_EMPTY
from fairlead.model.plan import ABSENT
from fairlead.model.snapshot import Snapshot

_TABLES = (SHARE, OWED, CARRIED)


@dataclass(frozen=True, slots=True, eq=False)
class UnitAccount:
    """The current allocation and the time owed to each unit, as of the last plan's start.

    Units are first the jobs alone, in the order of ``job``, whether they have shares or not,
    then the packed ones.
    """

    job: IntArray
    packed: IntArray
    """packed units × width → job numbers, ascending, then ABSENT where a unit has fewer"""
    tables: FloatArray
    """shares, time owed and time carried over, each units × accelerators"""
    received_s: FloatArray
    """jobs × accelerators → time received as of the last plan"""
    ran: IntArray
    """jobs → the unit as a part of which the last plan let it run, ABSENT for none"""
    starts_at: float
    solved_at: float
    changes: int
    """the snapshot's count of changes when the allocation was made"""
    ends_at: float = field(default=0.0, metadata=OMIT_IF_EMPTY)
    """end that is aimed at where devices are reserved for long gangs; 0 where none are"""

    @classmethod
    def empty(cls) -> "UnitAccount":
        """Return an account without jobs."""
        none = np.zeros((0, 1))
        pairs = np.zeros((0, 2), dtype=np.int64)
        return cls(NO_INTS, pairs, np.zeros((3, 0, 1)), none, NO_INTS, 0.0, -np.inf, -1)

    @property
    def share(self) -> FloatArray:
        """units × accelerators → share of time."""
        share: FloatArray = self.tables[SHARE]
        return share

    @property
    def owed_s(self) -> FloatArray:
        """units × accelerators → time promised less time received since the allocation."""
        owed: FloatArray = self.tables[OWED]
        return owed

    def advanced_to(self, snap: Snapshot) -> "UnitAccount":
        """Return the account at the snapshot's start; new jobs are owed nothing.

        Units with a job that has ended are gone, with all they were owed or ahead.
        """
        same = len(self.job) > 0 and np.array_equal(self.job, snap.job)
        account = self if same else self._in_order_of(snap)
        tables = account.tables.copy()
        tables[OWED] += tables[SHARE] * (snap.starts_at - account.starts_at)
        tables[OWED] -= account._received_by_units(snap)
        return UnitAccount(
            snap.job,
            account.packed,
            tables,
            snap.received_s,
            account.ran,
            snap.starts_at,
            account.solved_at,
            account.changes,
            self.ends_at,
        )

    def _received_by_units(self, snap: Snapshot) -> FloatArray:
        """Return units × accelerators → time since the last plan.

        A packed unit has run while all its jobs did; what else a job has had, it had alone.
        """
        n = len(self.job)
        more = snap.received_s - self.received_s
        received = np.zeros(self.tables.shape[1:])
        together = (self.ran >= n).nonzero()[0]
        unit = self.ran[together]
        received[unit] = np.inf
        np.minimum.at(received, unit, more[together])
        more[together] -= received[unit]
        received[:n] = more
        return received

    def _in_order_of(self, snap: Snapshot) -> "UnitAccount":
        """Return the account for the snapshot's jobs, nothing else changed."""
        n, n_accelerators = snap.received_s.shape
        known = is_among(snap.job, self.job)
        at = np.searchsorted(self.job, snap.job[known])
        stays = ((self.packed == ABSENT) | is_among(self.packed, snap.job)).all(axis=1)
        packed = self.packed[stays]
        tables = np.zeros((len(_TABLES), n + len(packed), n_accelerators))
        received = snap.received_s.copy()
        ran = np.full(n, ABSENT)
        if len(self.job):
            before = len(self.job)
            tables[:, :n][:, known] = self.tables[:, at]
            tables[:, n:] = self.tables[:, before:][:, stays]
            received[known] = self.received_s[at]
            row_of = np.full(before + len(self.packed) + 1, ABSENT)
            row_of[:-1][at] = known.nonzero()[0]
            row_of[before:-1][stays] = np.arange(n, n + len(packed))
            ran[known] = row_of[self.ran[at]]
            # The time that a job had in a unit that is gone counts for no other unit.
            gone = known.nonzero()[0][(self.ran[at] != ABSENT) & (ran[known] == ABSENT)]
            received[gone] = snap.received_s[gone]
        return UnitAccount(
            snap.job,
            packed,
            tables,
            received,
            ran,
            self.starts_at,
            self.solved_at,
            self.changes,
            self.ends_at,
        )

    def with_new_shares(
        self, allocation: Allocation, snap: Snapshot, *, carry_s: float
    ) -> "UnitAccount":
        """Return the account under new shares, nothing owed; up to ``carry_s`` is carried over.

        A unit's debt is carried over where the same jobs have shares together again.
        """
        n = len(snap.job)
        packed, share = shares_of_units(allocation, snap)
        if not len(packed):
            share = keep_in_place(snap, share)
        tables = np.zeros((len(_TABLES), *share.shape))
        tables[SHARE] = share
        debt = np.clip(self.tables[CARRIED] + self.tables[OWED], -carry_s, carry_s)
        tables[CARRIED, :n] = debt[:n]
        if len(packed) and packed.shape[1] == self.packed.shape[1]:
            before, after = _same_rows(self.packed, packed)
            tables[CARRIED, n + after] = debt[n + before]
        tables[CARRIED][share <= 0] = 0.0
        return UnitAccount(
            snap.job,
            packed,
            tables,
            self.received_s,
            self.ran,
            self.starts_at,
            snap.starts_at,
            snap.changes,
        )

    def with_reserved(self, share: FloatArray, ends_at: float) -> "UnitAccount":
        """Return the account under shares that reserve devices for long gangs."""
        tables = self.tables.copy()
        tables[SHARE] = share
        return replace(self, tables=tables, ends_at=ends_at)


def shares_of_units(allocation: Allocation, snap: Snapshot) -> tuple[IntArray, FloatArray]:
    """Return the packed units that have shares, and units × accelerators → share of time.

    Units are as in an account. Placements of one accelerator are added up, for it is the placer
    that consolidates gangs where it can.
    """
    if allocation.rows != "jobs" or allocation.measure != "time":
        raise UsageError(
            f"this mechanism realises time shares of units of jobs, not"
            f" {allocation.measure} of {allocation.rows}"
        )
    n, n_accelerators = len(snap.job), len(snap.capacity)
    share = np.zeros((len(allocation.share), n_accelerators))
    for column, (accelerator, _) in enumerate(allocation.columns):
        share[:, accelerator] += np.maximum(allocation.share[:, column], 0.0)
    last = np.iinfo(np.int64).max
    members = np.sort(np.where(allocation.members < 0, last, allocation.members), axis=1)
    members[members == last] = ABSENT
    alone = (members[:, 1:] < 0).all(axis=1)
    packs = ~alone & (share > 0).any(axis=1)
    packed, unit = _distinct_rows(members[packs])
    shares = np.zeros((n + len(packed), n_accelerators))
    np.add.at(shares, np.searchsorted(snap.job, members[alone, 0]), share[alone])
    np.add.at(shares, n + unit, share[packs])
    return packed, shares


def _distinct_rows(rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct rows, ascending, and rows → which of them: np.unique, but faster."""
    order = np.lexsort(rows.T[::-1])
    ascending = rows[order]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (ascending[1:] != ascending[:-1]).any(axis=1)
    index = np.empty(len(rows), dtype=np.int64)
    index[order] = np.cumsum(new) - 1
    return ascending[new], index


def _same_rows(one: IntArray, other: IntArray) -> tuple[IntArray, IntArray]:
    """Return the places of equal rows in both; the rows of each are distinct."""
    distinct, index = _distinct_rows(np.concatenate([one, other]))
    place = np.full(len(distinct), ABSENT)
    place[index[: len(one)]] = np.arange(len(one))
    in_one = place[index[len(one) :]]
    in_other = (in_one != ABSENT).nonzero()[0]
    return in_one[in_other], in_other
