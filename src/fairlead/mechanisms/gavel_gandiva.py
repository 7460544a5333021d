"""Gandiva as Gavel compares itself with it: an equal split, with random pairs that pay (§7)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b
from typing import ClassVar

import numpy as np

from fairlead.mechanisms._rounds.deficits import SHARE
from fairlead.mechanisms._rounds.unit_deficits import UnitAccount
from fairlead.mechanisms._rounds.unit_selection import rows_of_units
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.plan import ABSENT, Plan
from fairlead.model.snapshot import Snapshot
from fairlead.placement import plan_unit_moves
from fairlead.policies.base import accelerator_columns

_NO_PAIRS = np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class PairAccount(UnitAccount):
    """The account of an equal split, and the pairs that share it."""

    pairs: IntArray = field(default_factory=_NO_PAIRS.copy)
    """pairs × 2 → job numbers"""
    draws: int = 0
    """number of draws of partners so far"""

    @classmethod
    def with_pairs(cls, account: UnitAccount, pairs: IntArray, draws: int) -> "PairAccount":
        """Return the account together with its pairs."""
        values = {part.name: getattr(account, part.name) for part in fields(UnitAccount)}
        return cls(**values, pairs=pairs, draws=draws)


@dataclass(frozen=True)
class GavelGandiva:
    """Give every unit an equal part of every accelerator; pair jobs at random in overload.

    While more devices are wanted than there are, jobs without a partner get one at random among
    those of the same gang. At the next allocation a pair stays if the two together are at least as
    fast as one alone (each speed over that alone, added up, in the mean over accelerators where
    either can run), else both get other partners. Rounds are Gavel's own: accelerators are filled
    in the cluster's order, each with the units that have had least of it for their share; devices
    that fall idle stay so until the round ends.
    """

    round_s: float = 360.0
    """length of a round"""
    min_interval_s: float = 0.0
    """least time between two allocations; the published artifact uses 1920"""
    seed: int = 0
    """seed of the draws of partners"""

    capabilities: ClassVar[Capabilities] = Capabilities(reads_progress=False)

    def initial(self) -> PairAccount:
        """Return an account without jobs."""
        return PairAccount.with_pairs(UnitAccount.empty(), _NO_PAIRS, 0)

    def plan(self, snap: Snapshot, memory: PairAccount) -> tuple[Plan, PairAccount]:
        """Return the round of units that have had least, with new pairs if anything changed."""
        pairs, draws = memory.pairs, memory.draws
        account = memory.advanced_to(snap)
        stale = account.changes != snap.changes and (
            snap.starts_at - account.solved_at >= self.min_interval_s
        )
        if stale:
            pairs, draws = self._draw_pairs(snap, pairs, draws), draws + 1
            split = self._split(snap, pairs)
            account = account.with_new_shares(split, snap, carry_s=0.0)
        members = rows_of_units(account.packed, snap.job)
        wanted, ran = self._choose(snap, account, members)
        units = members[list(wanted)].tolist()
        stop, start = plan_unit_moves(snap, units, list(wanted.values()))
        until = snap.starts_at + self.round_s
        plan = Plan(stop, start, until, until, stale)
        return plan, PairAccount.with_pairs(replace(account, ran=ran), pairs, draws)

    def _split(self, snap: Snapshot, pairs: IntArray) -> Allocation:
        """Return capacity / (units × gang) for each accelerator, at most all of a unit's time."""
        row_of = {job: row for row, job in enumerate(snap.job.tolist())}
        paired = set(pairs.ravel().tolist())
        units = [*pairs.tolist(), *([job, ABSENT] for job in row_of if job not in paired)]
        first = np.array([row_of[unit[0]] for unit in units], dtype=np.int64)
        gang = snap.gang[first][:, None]
        runs = (snap.speed[first] > 0) & (gang <= snap.capacity)
        for i, pair in enumerate(pairs.tolist()):
            runs[i] &= self._beside(snap, [row_of[job] for job in pair]).all(axis=0)
        share = np.where(runs, snap.devices / (max(len(units), 1) * gang), 0.0)
        share /= np.maximum(share.sum(axis=1, keepdims=True), 1.0)
        members = np.array(units, dtype=np.int64).reshape(-1, 2)
        return Allocation(members, share, accelerator_columns(len(snap.capacity)))

    def _choose(
        self, snap: Snapshot, account: UnitAccount, members: IntArray
    ) -> tuple[dict[int, int], IntArray]:
        """Return units → accelerator of those that run, and jobs → unit it runs in."""
        share = account.tables[SHARE]
        # As in ``gavel``: half a round stands for what was received before the first one.
        promised = share * (snap.starts_at - account.solved_at)
        received = np.maximum(promised - account.owed_s, 0.0) + self.round_s / 2
        priority = share / (received / received.sum(axis=0))
        unit, column = share.nonzero()
        order = np.lexsort((unit, -priority[unit, column].round(9), column))
        free, gang = snap.capacity.tolist(), snap.gang.tolist()
        ran = np.full(len(snap.job) + 1, ABSENT, dtype=np.int64)
        wanted: dict[int, int] = {}
        rows_of: list[list[int]] = members.tolist()
        for u, accelerator in zip(unit[order].tolist(), column[order].tolist(), strict=True):
            rows = [row for row in rows_of[u] if row != ABSENT]
            if free[accelerator] >= gang[rows[0]] and (ran[rows] == ABSENT).all():
                free[accelerator] -= gang[rows[0]]
                ran[rows] = u
                wanted[u] = accelerator
        return wanted, ran[:-1]

    def _draw_pairs(self, snap: Snapshot, before: IntArray, draw: int) -> IntArray:
        """Return the pairs that stay, and new ones for all who have none, by gang."""
        if int(snap.gang.sum()) <= int(snap.capacity.sum()):
            return _NO_PAIRS
        row_of = {job: row for row, job in enumerate(snap.job.tolist())}
        stay = [
            pair
            for pair in before.tolist()
            if all(job in row_of for job in pair)
            and self._gain(snap, [row_of[job] for job in pair]) >= 1.0
        ]
        paired = {job for pair in stay for job in pair}
        alone: dict[int, list[int]] = {}
        for job, gang in zip(snap.job.tolist(), snap.gang.tolist(), strict=True):
            if job not in paired:
                alone.setdefault(gang, []).append(job)
        for _, jobs in sorted(alone.items()):
            drawn = sorted(jobs, key=lambda job: (_random_key(self.seed, draw, job), job))
            together = [sorted(drawn[i : i + 2]) for i in range(0, len(drawn) - 1, 2)]
            # Two that cannot run on the same devices at all stay alone until the next draw.
            stay += [
                pair
                for pair in together
                if self._beside(snap, [row_of[job] for job in pair]).all(axis=0).any()
            ]
        return np.array(stay, dtype=np.int64).reshape(-1, 2)

    def _gain(self, snap: Snapshot, rows: Sequence[int]) -> float:
        """Return the speeds of two jobs together over those alone, added up."""
        alone = snap.profiles.speed[snap.profile[list(rows)]]
        gain = np.zeros_like(alone)
        np.divide(self._beside(snap, rows), alone, out=gain, where=alone > 0)
        runs = (alone > 0).any(axis=0)
        return float(gain.sum(axis=0)[runs].mean())

    def _beside(self, snap: Snapshot, rows: Sequence[int]) -> FloatArray:
        """Return two jobs × accelerators → believed steps per second beside each other."""
        assert snap.speeds is not None
        known = snap.speeds.pairs(snap.cluster.accelerators)
        profiles, profile = snap.profiles, snap.profile[list(rows)]
        a, b = (known.index[profiles.workload[p]] for p in profile.tolist())
        packed = known.block(int(profiles.gang[profile[0]]), "consolidated")
        may = profiles.speed[profile] > 0
        return np.where(may, np.array([packed[a, b], packed[b, a]]), 0.0)


def _random_key(seed: int, draw: int, job: int) -> bytes:
    """Return a key that orders jobs at random, the same on every machine."""
    return blake2b(f"{seed},{draw},{job}".encode(), digest_size=8).digest()
