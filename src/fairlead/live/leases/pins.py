"""Leases that must not be preempted now: their jobs would lose work, or have just started."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.core.queries import Queries
from fairlead.live.job_spec import JobSpec
from fairlead.live.leases.open_leases import OpenLease
from fairlead.live.leases.registry import LeaseRegistry
from fairlead.live.scheduling_config import SchedulingConfig
from fairlead.mechanisms.base import HasRounds, Mechanism
from fairlead.model import events as ev

_MAX_START_S = 600.0
"""seconds after which a job that can checkpoint has no more protection for its start"""
_MIN_START_S = 60.0
_SLOW_START = 10.0
"""times its longest start so far, after which a job that was started before has none either"""
_MAX_JOBS = 10_000
"""jobs whose starts are remembered"""


@dataclass(slots=True)
class _Starts:
    """Starts of a job's earlier leases."""

    longest_s: float = 0.0
    slow_lease: int | None = None
    """a lease that has made no step for too long, until the next one starts"""
    full_lease: int | None = None
    """the last lease after a slow one, which has the full time"""


class LeasePins:
    """Decides before every plan which leases it must leave in place.

    - A job that does not checkpoint (``auto``: it has not called the library) or that must not
      be preempted (``no``) keeps its devices until it ends.
    - Any other job keeps them unless it will have trained for as long as its start took, or for
      half a round if it does not report its steps, when the plan is applied. A gang that hangs
      at its start must not keep others waiting: only the first lease has the full time for it,
      and the next one after a lease for which less was too short.
    """

    def __init__(
        self,
        queries: Queries,
        registry: LeaseRegistry,
        specs: Mapping[str, JobSpec],
        mechanism: Mechanism[Any],
    ) -> None:
        self._queries, self._registry, self._specs = queries, registry, specs
        self._min_run_s = _min_run_s(mechanism)
        self._seen_at: dict[int, float] = {}
        """leases of an earlier server → time at which this one first saw them"""
        self._starts: dict[str, _Starts] = {}

    def use_config(self, config: SchedulingConfig) -> None:
        """Protect starts for half a round of another mechanism."""
        self._min_run_s = _min_run_s(config.mechanism)

    def events(self, at: float) -> list[ev.Event]:
        """Return the change of the pinned leases, if there is one."""
        pinned = {lease.number for lease in self._registry.open.values() if self.keeps(lease, at)}
        if pinned == self._queries.pinned_leases():
            return []
        return [ev.LeasesPinned(at, np.array(sorted(pinned), dtype=np.int64))]

    def keeps(self, lease: OpenLease, at: float) -> bool:
        """Return whether a plan that is made now must leave a lease its devices."""
        if lease.leaving:
            return False
        spec = self._specs[lease.job]
        preempt = spec.preempt
        if preempt == "no":
            return True
        launched_at = self._launched_at(lease, at)
        applied_at = self._queries.plan_applied_at(at)
        if lease.first_step_at is not None:
            start_s = min(lease.first_step_at - launched_at, _MAX_START_S)
            self._note_start(lease, start_s)
            return applied_at - lease.first_step_at < start_s
        age_s = at - launched_at
        # Steps that a job has printed are in no checkpoint that it could be loading now.
        loads = spec.progress_pattern is None and self._has_checkpoint(lease.job)
        if lease.last_heartbeat_at is not None or loads:
            return age_s < self._start_limit_s(lease, age_s)
        return preempt == "auto" or applied_at - launched_at < self._min_run_s

    def _note_start(self, lease: OpenLease, start_s: float) -> None:
        if math.isnan(lease.launched_at):  # by an earlier server
            return
        starts = self._starts.setdefault(lease.job, _Starts())
        starts.longest_s, starts.slow_lease = max(starts.longest_s, start_s), None
        if len(self._starts) > _MAX_JOBS:
            del self._starts[next(iter(self._starts))]

    def _start_limit_s(self, lease: OpenLease, age_s: float) -> float:
        """Return the seconds for which a lease may start, now that it has for ``age_s``."""
        starts = self._starts.get(lease.job)
        if starts is None:
            return _MAX_START_S
        if starts.slow_lease not in (None, lease.number):
            starts.slow_lease, starts.full_lease = None, lease.number
        if starts.full_lease == lease.number:
            return _MAX_START_S
        limit_s = min(max(_SLOW_START * starts.longest_s, _MIN_START_S), _MAX_START_S)
        if age_s >= limit_s:
            starts.slow_lease = lease.number
        return limit_s

    def _launched_at(self, lease: OpenLease, at: float) -> float:
        if not math.isnan(lease.launched_at):
            return lease.launched_at
        return self._seen_at.setdefault(lease.number, at)

    def _has_checkpoint(self, job_id: str) -> bool:
        return self._queries.saved_steps(self._queries.job_number(job_id)) > 0


def _min_run_s(mechanism: Mechanism[Any]) -> float:
    """Return half a round of a mechanism, in seconds."""
    round_s = mechanism.round_s if isinstance(mechanism, HasRounds) else math.inf
    return min(round_s / 2, _MAX_START_S)
