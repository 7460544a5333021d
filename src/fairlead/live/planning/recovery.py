"""Plans after a failure: jobs that make the computation fail are left out."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from fairlead.model.arrays import BoolArray, IntArray
from fairlead.model.plan import ABSENT, Plan
from fairlead.model.profiles import Profiles
from fairlead.model.snapshot import Measurements, Snapshot
from fairlead.model.tenants.tenant import Tenant

PlanFunction = Callable[[Snapshot, Any], tuple[Plan, Any]]
"""computes the plan for a snapshot and memory, and the memory after it"""

_MAX_TRIES = 60
_MAX_SEARCH_S = 30.0
"""limits of the search for jobs that make a plan fail"""
_JOB_COLUMNS = (
    "job", "profile", "arrival_at", "total_steps", "steps", "deadline_at", "priority",
    "precedence", "received_s", "on", "lease", "isolated_elapsed_s", "restart_s",
)  # fmt: skip
_PROFILE_COLUMNS = ("speed", "gang", "weight", "min_gang", "max_gang", "member", "gangs")


@dataclass(frozen=True, slots=True)
class RecoveredPlan:
    """A plan for the jobs that do not make it fail."""

    plan: Plan | None
    """None: plans fail with each of the jobs, but not as such"""
    memory: Any
    left_out: tuple[int, ...]
    """numbers of the jobs that it leaves out"""


def recover_plan(
    make_planner: Callable[[], PlanFunction],
    snapshot: Snapshot,
    memory: Any,
    suspects: Collection[int] = (),
) -> RecoveredPlan | None:
    """Return a plan without the jobs that make it fail; None if planning as such fails.

    First leaves out ended jobs only, then ``suspects``, jobs that made earlier plans fail. Then
    searches for the tenants whose jobs make plans fail,
    and for the profiles among their jobs. All jobs of a tenant are left out if that search
    takes too long. If no job remains, a job with ordinary numbers shows whether planning works.
    """
    search = _Search(make_planner, snapshot, memory)
    kept = np.arange(len(snapshot.job))
    plan = search.final(kept)
    if plan is None and suspects:
        kept = np.flatnonzero(~np.isin(snapshot.job, list(suspects)))
        plan = search.final(kept)
    if plan is None:
        kept = np.setdiff1d(np.arange(len(snapshot.job)), search.culprits())
        plan = search.final(kept)
    while plan is None and len(kept) > 1:  # the jobs fail together only: the oldest stay
        kept = kept[: len(kept) // 2]
        plan = search.final(kept)
    if plan is None:
        works = search.plans_ordinary_job()
        return RecoveredPlan(None, memory, tuple(snapshot.job.tolist())) if works else None
    left_out = np.setdiff1d(snapshot.job, snapshot.job[kept])
    return RecoveredPlan(*plan, tuple(left_out.tolist()))


class _Search:
    """Bisects the jobs of a snapshot, in a bounded number of tries."""

    def __init__(
        self, make_planner: Callable[[], PlanFunction], snapshot: Snapshot, memory: Any
    ) -> None:
        self._make_planner, self._snapshot, self._memory = make_planner, snapshot, memory
        self._tries, self._until = 0, time.monotonic() + _MAX_SEARCH_S

    def final(self, rows: IntArray) -> tuple[Plan, Any] | None:
        """Return the plan for these jobs, while others keep their devices; None if it fails."""
        return self._compute(without_jobs(self._snapshot, rows)) if len(rows) else None

    def plans_ordinary_job(self) -> bool:
        """Return whether a plan can be computed for a single job with ordinary numbers."""
        return self._compute(_ordinary(self._snapshot)) is not None

    def culprits(self) -> IntArray:
        """Return the rows of the jobs to leave out."""
        rows, tenant = np.arange(len(self._snapshot.job)), self._snapshot.tenant
        rejected: list[IntArray] = []
        for each in self._failing(rows, np.unique(tenant), tenant):
            own = rows[tenant == each]
            profile = self._snapshot.profile
            failing = self._failing(own, np.unique(profile[own]), profile)
            complete = len(failing) and self._tries < _MAX_TRIES
            rejected.append(own[np.isin(profile[own], failing)] if complete else own)
        return np.concatenate(rejected) if rejected else np.zeros(0, dtype=np.int64)

    def _failing(self, rows: IntArray, groups: IntArray, group_of: IntArray) -> list[int]:
        """Return the groups of jobs that fail alone; all of them once the tries are spent."""
        chosen = rows[np.isin(group_of[rows], groups)]
        if self._works(chosen):
            return []
        if len(groups) == 1 or self._is_spent():
            return [int(group) for group in groups]
        middle = len(groups) // 2
        return [
            *self._failing(rows, groups[:middle], group_of),
            *self._failing(rows, groups[middle:], group_of),
        ]

    def _works(self, rows: IntArray) -> bool:
        if self._is_spent():
            return False
        self._tries += 1
        return self._compute(only_jobs(self._snapshot, rows)) is not None

    def _is_spent(self) -> bool:
        return self._tries >= _MAX_TRIES or time.monotonic() > self._until

    def _compute(self, snapshot: Snapshot) -> tuple[Plan, Any] | None:
        try:
            return self._make_planner()(snapshot, self._memory)
        except Exception:  # of any kind: the caller leaves out other jobs
            return None


def without_jobs(snapshot: Snapshot, rows: IntArray) -> Snapshot:
    """Return the snapshot with only these jobs; the devices of the others are not usable."""
    kept, device_of = np.isin(np.arange(len(snapshot.job)), rows), snapshot.holds
    while True:
        # A job that shares a device with one that is left out is left out, too.
        taken: BoolArray = np.any((device_of >= 0) & ~kept[device_of], axis=0)
        sharing = np.unique(device_of[:, taken])
        sharing = sharing[sharing >= 0]
        if not kept[sharing].any():
            break
        kept[sharing] = False
    usable = snapshot.usable[~taken[snapshot.usable]]
    accelerator = snapshot.cluster.accelerator_of[usable]
    capacity = np.bincount(accelerator, minlength=len(snapshot.capacity))
    return replace(only_jobs(snapshot, kept.nonzero()[0]), usable=usable, capacity=capacity)


def only_jobs(snapshot: Snapshot, rows: IntArray) -> Snapshot:
    """Return the snapshot with only these jobs, on all devices; others take no part."""
    row_of = np.full(len(snapshot.job) + 1, ABSENT, dtype=np.int64)
    row_of[rows] = np.arange(len(rows))
    holds = row_of[snapshot.holds]  # the last entry is that of ABSENT, -1
    leases, measured = snapshot.holds_lease, snapshot.measured
    if measured is not None:
        measured = Measurements(
            **{f.name: getattr(measured, f.name)[rows] for f in fields(measured)}
        )
    return replace(
        snapshot,
        profiles=_only_profiles(snapshot.profiles, np.unique(snapshot.profile[rows])),
        holds=holds,
        holds_lease=None if leases is None else np.where(holds < 0, ABSENT, leases),
        measured=measured,
        **{name: getattr(snapshot, name)[rows] for name in _JOB_COLUMNS},
    )


def _ordinary(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with its first job only, which waits and has ordinary numbers."""
    only = only_jobs(snapshot, np.zeros(1, dtype=np.int64))
    profiles, absent = only.profiles, np.full(1, ABSENT, dtype=np.int64)
    numbers = {"speed": 1.0, "gang": 1, "weight": 1.0, "min_gang": 1, "max_gang": 1}
    columns = {name: getattr(profiles, name) for name in numbers}
    ordinary = {
        name: np.full_like(column, numbers[name])
        for name, column in columns.items()
        if column is not None
    }
    return replace(
        only,
        profiles=replace(profiles, **ordinary, member=None, gangs=None),
        tenants=tuple(Tenant(tenant.id) for tenant in snapshot.tenants),
        total_steps=np.array([1000.0]),
        steps=np.zeros(1),
        deadline_at=np.array([np.inf]),
        priority=np.zeros(1),
        precedence=np.zeros(1),
        received_s=np.zeros_like(only.received_s),
        on=absent,
        lease=absent,
        holds=np.full_like(only.holds, ABSENT),
        holds_lease=None,
        isolated_elapsed_s=np.zeros(1),
        restart_s=np.zeros(1),
    )


def _only_profiles(profiles: Profiles, kept: IntArray) -> Profiles:
    """Return the profiles with the numbers of all but these replaced; their indices stay."""
    if not len(kept):
        return profiles
    index = np.full(len(profiles.gang), kept[0])
    index[kept] = kept
    columns = {name: getattr(profiles, name) for name in _PROFILE_COLUMNS}
    return replace(
        profiles,
        **{name: column[index] for name, column in columns.items() if column is not None},
    )
