"""Utilities of Hadar's jobs on each accelerator, from speeds and steps left."""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fairlead.mechanisms.hadar.bid_queue import BidQueue
from fairlead.mechanisms.hadar.prices import Bidders, horizon_s
from fairlead.mechanisms.hadar.utilities import Utility, UtilityTerms
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.profile_speeds import believed_workload

ALL = slice(None)


@dataclass(frozen=True, eq=False)
class JobUtilities:
    """jobs × accelerators → utility of running through from now on; 0 where it cannot run.

    The first axis of ``together`` and ``spread`` is 0 for a job that stays on its devices and 1
    for one that starts or moves, which costs a restart if it has run before.
    """

    gang: Sequence[int]
    speed: FloatArray
    """jobs × accelerators → steps per second on one node"""
    together: FloatArray
    spread: FloatArray
    bidders: Bidders
    at_speed: Callable[[FloatArray, slice], FloatArray]
    """speeds (jobs × any) of these jobs → utility of starting or moving to run through so fast"""
    terms: Callable[[], FloatArray]
    """terms of ``at_speed`` × jobs: steps left, seconds since arrival and of a restart,
    numerator, and the seconds since arrival that do not count"""

    @classmethod
    def of(
        cls, snap: Snapshot, utility: Utility, *, restart_s: float, round_s: float, horizon: float
    ) -> "JobUtilities":
        """Return the utilities of a snapshot's jobs; ``horizon`` 0 stands for Graham's bound."""
        alone, spread = _speeds(snap)
        fastest = np.maximum(alone, spread).max(axis=1)
        terms = UtilityTerms.of(snap, fastest)
        left = snap.steps_left[:, None]
        begun = snap.received_s.sum(axis=1, keepdims=True) > 0.0
        wait = [0.0 * begun, restart_s * begun]

        def run_s(speed: FloatArray, jobs: slice = ALL) -> FloatArray:
            with np.errstate(divide="ignore"):
                time: FloatArray = left[jobs] / speed
            return time

        def worth(time: FloatArray, wait_s: FloatArray, own: UtilityTerms = terms) -> FloatArray:
            value = utility(own, own.elapsed_s + wait_s + time)
            value[np.isinf(time)] = 0.0
            return value

        def at_speed(speed: FloatArray, jobs: slice) -> FloatArray:
            return worth(run_s(speed, jobs), wait[1][jobs], terms.only(jobs))

        def columns() -> FloatArray:
            since = terms.elapsed_s if utility.from_now else np.zeros_like(left)
            rows = left, terms.elapsed_s, wait[1], utility.numerator(terms), since
            return np.hstack(rows).T.copy()

        alone_s = run_s(alone)
        together = np.stack([worth(alone_s, w) for w in wait])
        apart = together
        if spread is not alone:
            apart = np.stack([worth(run_s(spread), w) for w in wait])
        slowest_s = np.where(np.isinf(alone_s), 0.0, alone_s).max(axis=1)
        ends_s = horizon or horizon_s(snap.gang, slowest_s, len(snap.usable))
        ends_s = max(ends_s, float(slowest_s.max(initial=0.0)))
        bidders = Bidders(
            snap.gang,
            alone > 0.0,
            np.maximum(together[0], apart[0]),
            utility(terms, terms.elapsed_s + ends_s)[:, 0],
            np.maximum(np.ceil(slowest_s / round_s), 1.0),
        )
        gang = snap.gang.tolist()
        return cls(gang, alone, together, apart, bidders, at_speed, columns)

    def bids(self, rows: Iterable[int], on: IntArray) -> BidQueue:
        """Return the bids of some jobs, those first that can pay most per device.

        ``on`` is jobs → accelerator held: a job that stays on its accelerator will mostly find
        its devices again, so it bids there without the cost of a restart.
        """
        row = np.fromiter(rows, dtype=np.int64)
        at = on[row]
        stays = (at >= 0).nonzero()[0]

        def bids(table: FloatArray) -> FloatArray:
            bid: FloatArray = table[1, row]
            bid[stays, at[stays]] = table[0, row[stays], at[stays]]
            return bid

        one_node = bids(self.together)
        apart = one_node if self.spread is self.together else bids(self.spread)
        most = np.maximum(one_node, apart).max(axis=1, initial=0.0)
        queue = BidQueue(row, self.bidders.gang[row], one_node, apart)
        return queue.where((-most / queue.gang).argsort(kind="stable"))

    @cached_property
    def on_one_node(self) -> list[list[list[float]]]:
        """``together`` as lists, which are faster to read one by one."""
        lists: list[list[list[float]]] = self.together.tolist()
        return lists

    @cached_property
    def speed_lists(self) -> list[list[float]]:
        """``speed`` as lists, which are faster to read one by one."""
        lists: list[list[float]] = self.speed.tolist()
        return lists

    def utility(
        self, row: int, accelerators: Iterable[int], *, one_node: bool, stays: bool
    ) -> float:
        """Return the utility of a job on devices of these accelerators: the slowest decides."""
        table = self.together if one_node else self.spread
        worth: FloatArray = table[0 if stays else 1, row]
        return min(float(worth[accelerator]) for accelerator in accelerators)


def _speeds(snap: Snapshot) -> tuple[FloatArray, FloatArray]:
    """Return jobs × accelerators → speed with the gang on one node and on several.

    The speed is that of a gang which has this accelerator as its slowest; 0 where it cannot or
    may not run. Both are the same table where every job needs one device.
    """
    profiles, table = snap.profiles, snap.speeds
    together = profiles.member_speed
    if profiles.single:
        alone = together.take(snap.profile, axis=0)
        return alone, alone
    spread = together.copy()
    if table is not None:
        accelerators = snap.cluster.accelerators
        for p in np.unique(snap.profile[snap.gang > 1]).tolist():
            workload, gang = believed_workload(snap, p), int(profiles.gang[p])
            for k in (together[p] > 0.0).nonzero()[0].tolist():
                spread[p, k] = table.member_speed(
                    workload, gang, accelerators[k], placement="spread"
                )
    return together.take(snap.profile, axis=0), spread.take(snap.profile, axis=0)


def held_devices(snap: Snapshot, up: Container[int]) -> dict[int, tuple[int, ...]]:
    """Return row → devices that are up, of the jobs that hold some or wait for some given."""
    lane, device = (snap.holds >= 0).nonzero()
    rows = snap.holds[lane, device].tolist()
    pairs = [(row, here) for row, here in zip(rows, device.tolist(), strict=True) if here in up]
    single: dict[int, tuple[int, ...]] = {row: (here,) for row, here in pairs}
    if len(single) == len(pairs):
        return single
    held: dict[int, list[int]] = {}
    for row, here in pairs:
        held.setdefault(row, []).append(here)
    return {row: tuple(sorted(devices)) for row, devices in held.items()}


def undisturbed_holders(snap: Snapshot) -> IntArray | None:
    """Return the job of each device that one holds; None if any cannot simply continue.

    That is so if a device is down, a job has devices without a lease, or copies run.
    """
    if len(snap.holds) != 1 or snap.holds_lease is not None:
        return None
    holds = snap.holds[0]
    holders: IntArray = holds[holds >= 0]
    if len(snap.usable) != len(holds) or (snap.lease[holders] < 0).any():
        return None
    return holders
