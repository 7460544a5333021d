"""Gandiva as Gavel compares itself with it: an equal split, with random pairs that pay (§7)."""

from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import ClassVar

import numpy as np

from fairlead.mechanisms._rounds.deficits import SHARE
from fairlead.mechanisms._rounds.unit_deficits import UnitAccount
from fairlead.mechanisms._rounds.unit_selection import rows_of_units
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray, IntArray, is_among
from fairlead.model.capabilities import Capabilities
from fairlead.model.plan import ABSENT, Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.key import plain_workload
from fairlead.placement import plan_unit_moves
from fairlead.policies.base import accelerator_columns

_NO_PAIRS = np.zeros((0, 2), dtype=np.int64)
_COLUMNS = tuple(part.name for part in fields(UnitAccount))


@dataclass(frozen=True, slots=True, eq=False)
class PairAccount(UnitAccount):
    """The account of an equal split, and the pairs that share it."""

    pairs: IntArray = field(default_factory=_NO_PAIRS.copy)
    """pairs × 2 → job numbers"""
    draws: int = 0
    """number of draws of partners so far"""

    @classmethod
    def of(cls, account: UnitAccount, ran: IntArray, pairs: IntArray, draws: int) -> "PairAccount":
        """Return the account after a round that let the jobs run so, together with its pairs."""
        values = {name: getattr(account, name) for name in _COLUMNS}
        return cls(**{**values, "ran": ran, "pairs": pairs, "draws": draws})


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

    capabilities: ClassVar[Capabilities] = Capabilities(reads_progress=False, packs=True)

    def initial(self) -> PairAccount:
        """Return an account without jobs."""
        account = UnitAccount.empty()
        return PairAccount.of(account, account.ran, _NO_PAIRS, 0)

    def plan(self, snap: Snapshot, memory: PairAccount) -> tuple[Plan, PairAccount]:
        """Return the round of units that have had least, with new pairs if anything changed."""
        pairs, draws = memory.pairs, memory.draws
        account = memory.advanced_to(snap)
        stale = account.changes != snap.changes and (
            snap.starts_at - account.solved_at >= self.min_interval_s
        )
        if stale:
            pairs, beside = self._draw_pairs(snap, pairs, draws)
            draws += 1
            split = self._split(snap, pairs, beside)
            account = account.with_new_shares(split, snap, carry_s=0.0)
        members = rows_of_units(account.packed, snap.job)
        wanted, ran = self._choose(snap, account, members)
        units = members[list(wanted)].tolist()
        stop, start = plan_unit_moves(snap, units, list(wanted.values()))
        until = snap.starts_at + self.round_s
        plan = Plan(stop, start, until, until, stale)
        return plan, PairAccount.of(account, ran, pairs, draws)

    def _split(self, snap: Snapshot, pairs: IntArray, beside: FloatArray) -> Allocation:
        """Return capacity / (units × gang) for each accelerator, at most all of a unit's time.

        ``beside`` is pairs × 2 × accelerators → steps per second of each beside the other.
        """
        alone = np.ones(len(snap.job), dtype=bool)
        together = np.searchsorted(snap.job, pairs)
        alone[together] = False
        members = np.full((len(pairs) + int(alone.sum()), 2), ABSENT, dtype=np.int64)
        members[: len(pairs)] = pairs
        members[len(pairs) :, 0] = snap.job[alone]
        first = np.concatenate([together[:, 0], alone.nonzero()[0]])
        gang = snap.gang[first][:, None]
        runs = (snap.speed[first] > 0) & (gang <= snap.capacity)
        runs[: len(pairs)] &= (beside != 0).all(axis=1)
        share = np.where(runs, snap.devices / (max(len(members), 1) * gang), 0.0)
        share /= np.maximum(share.sum(axis=1, keepdims=True), 1.0)
        return Allocation(members, share, accelerator_columns(len(snap.capacity)))

    def _choose(
        self, snap: Snapshot, account: UnitAccount, members: IntArray
    ) -> tuple[dict[int, int], IntArray]:
        """Return units → accelerator of those that run, and jobs → unit it runs in.

        No job has shares in two units, alone and in a pair.
        """
        share = account.tables[SHARE]
        # As in ``gavel``: half a round stands for what was received before the first one.
        promised = share * (snap.starts_at - account.solved_at)
        received = np.maximum(promised - account.owed_s, 0.0) + self.round_s / 2
        priority = (share / (received / received.sum(axis=0))).round(9)
        gang = snap.gang[members[:, 0]]
        waits = np.ones(len(members), dtype=bool)
        wanted: dict[int, int] = {}
        for accelerator, free in enumerate(snap.capacity.tolist()):
            unit = (waits & (share[:, accelerator] > 0)).nonzero()[0]
            unit = unit[(-priority[unit, accelerator]).argsort(kind="stable")]
            unit = unit[_that_fit(gang[unit], free)]
            wanted.update(dict.fromkeys(unit.tolist(), accelerator))
            waits[unit] = False
        ran = np.full(len(snap.job) + 1, ABSENT)  # the last one is nobody's
        runs = (~waits).nonzero()[0]
        ran[members[runs]] = runs[:, None]
        return wanted, ran[:-1]

    def _draw_pairs(
        self, snap: Snapshot, before: IntArray, draw: int
    ) -> tuple[IntArray, FloatArray]:
        """Return the pairs that stay, and new ones for all who have none, by gang.

        Also return pairs × 2 × accelerators → steps per second of each beside the other.
        """
        if int(snap.gang.sum()) <= int(snap.capacity.sum()):
            return _NO_PAIRS, _speeds_beside(snap, _NO_PAIRS)
        before = before[is_among(before, snap.job).all(axis=1)]
        rows = np.searchsorted(snap.job, before)
        beside = _speeds_beside(snap, rows)
        pays = _gains(snap, rows, beside) >= 1.0
        stay, stay_beside = before[pays], beside[pays]
        alone = np.ones(len(snap.job), dtype=bool)
        alone[np.searchsorted(snap.job, stay)] = False
        job, gang = snap.job[alone], snap.gang[alone]
        drawn = [stay]
        for size in np.unique(gang).tolist():
            drawn.append(self._draw_partners(job[gang == size].tolist(), draw))
        new = np.concatenate(drawn[1:]) if len(drawn) > 1 else _NO_PAIRS
        # Two that cannot run on the same devices at all stay alone until the next draw.
        beside = _speeds_beside(snap, np.searchsorted(snap.job, new))
        runs = (beside != 0).all(axis=1).any(axis=1)
        return np.concatenate([stay, new[runs]]), np.concatenate([stay_beside, beside[runs]])

    def _draw_partners(self, jobs: list[int], draw: int) -> IntArray:
        """Return pairs × 2 → job numbers, drawn at random among jobs of one gang."""
        order = sorted(jobs, key=lambda job: (_random_key(self.seed, draw, job), job))
        pairs = np.array(order[: len(order) // 2 * 2], dtype=np.int64).reshape(-1, 2)
        return np.sort(pairs, axis=1)


def _that_fit(gang: IntArray, free: int) -> list[int]:
    """Return the places of the gangs that get devices, if each that fits takes its own in turn."""
    if len(gang) and gang.max() == 1:
        return list(range(min(free, len(gang))))
    fit = []
    for i, size in enumerate(gang.tolist()):
        if not free:
            break
        if size <= free:
            free -= size
            fit.append(i)
    return fit


def _gains(snap: Snapshot, pairs: IntArray, beside: FloatArray) -> FloatArray:
    """Return pairs → speeds of the two jobs together over those alone, added up.

    It is the mean over accelerators where either can run; ``pairs`` holds rows of jobs, and
    ``beside`` their speeds beside each other.
    """
    alone = snap.profiles.speed[snap.profile[pairs]]
    gain = np.zeros_like(alone)
    np.divide(beside, alone, out=gain, where=alone > 0)
    runs = (alone > 0).any(axis=1)
    mean: FloatArray = np.where(runs, gain.sum(axis=1), 0.0).sum(axis=1) / runs.sum(axis=1)
    return mean


def _speeds_beside(snap: Snapshot, pairs: IntArray) -> FloatArray:
    """Return pairs × 2 × accelerators → believed steps per second of each beside the other.

    ``pairs`` holds rows of jobs with equal gangs.
    """
    speed = np.zeros((*pairs.shape, len(snap.capacity)))
    if not len(pairs):
        return speed
    assert snap.speeds is not None
    known = snap.speeds.pairs(snap.cluster.accelerators)
    profiles, profile = snap.profiles, snap.profile[pairs]
    used = np.zeros(len(profiles.workload), dtype=bool)
    used[profile] = True
    workload = np.full(len(used), -1)  # the last row of a block, where all speeds are 0
    for p in used.nonzero()[0].tolist():
        workload[p] = known.index.get(plain_workload(profiles.workload[p]), -1)
    own = workload[profile]
    other, gang = own[:, ::-1], profiles.gang[profile[:, 0]]
    for size in set(gang.tolist()):
        same = gang == size
        speed[same] = known.block(size, "consolidated")[own[same], other[same]]
    return np.where(profiles.speed[profile] > 0, speed, 0.0)


def _random_key(seed: int, draw: int, job: int) -> bytes:
    """Return a key that orders jobs at random, the same on every machine."""
    return blake2b(f"{seed},{draw},{job}".encode(), digest_size=8).digest()
