"""Detects simulations in which jobs wait for ever, or run and never make a step."""

import math

import numpy as np

from fairlead.model.errors import InputError
from fairlead.sim.cluster.virtual_cluster import VirtualCluster
from fairlead.sim.record import Record

_MAX_IDLE_PLANS = 1000
"""consecutive plans without leases after which no job is expected to start"""
_MAX_STALLED_ROUNDS = 1000
"""rounds without a step after which none is expected"""
_MAX_FRUITLESS_CHECKS = 2
"""consecutive checks between which all leases ended, and no job made a step"""


class StallWatch:
    """Watches a simulation to which nothing more comes for progress.

    A time-sliced job restarts in every turn. Where that takes as long as the turn, all jobs would
    take turns for ever; where it takes much longer, no job need be awaited, as long as none keeps
    its devices. With ``reviewed`` the reviewer ends the simulation.
    """

    def __init__(self, virtual: VirtualCluster, record: Record, *, reviewed: bool) -> None:
        self._virtual, self._record, self._reviewed = virtual, record, reviewed
        self._idle_plans = 0
        self._most = virtual.steps(0.0)
        """jobs → most steps at any check"""
        self._check_after = _MAX_STALLED_ROUNDS
        """rounds"""
        self._since = self._ready_at = -math.inf
        """time of the last check, and when all jobs that ran then would have been restarted"""
        self._turns_after, self._fruitless = _MAX_STALLED_ROUNDS, 0
        self._leases: frozenset[int] = frozenset()
        """leases at the last check of turns"""
        self._steps, self._fruitful_at = self._most, 0.0
        """jobs → steps then, and the last time when they had grown or a lease had lasted"""

    def is_over(self, at: float, leases: int, more_at: float) -> bool:
        """Return whether the mechanism never starts the jobs that wait.

        Called after every plan, with the number of leases and the time of the next arrival or
        change. Raises an InputError where jobs run and never make a step.
        """
        self._idle_plans = 0 if leases else self._idle_plans + 1
        if more_at < math.inf:
            return False
        if not self._reviewed and self._record.rounds >= self._check_after:
            self._check_steps(at)
        if not self._reviewed and self._record.rounds >= self._turns_after:
            self._check_turns(at)
        return self._idle_plans > _MAX_IDLE_PLANS

    def _check_steps(self, at: float) -> None:
        """Compare the steps with those of the last check.

        In between, the jobs that ran at first had the time to restart.
        """
        if at <= self._ready_at:
            return
        steps = self._virtual.steps(at)
        running, self._ready_at = self._virtual.running_and_ready_at()
        if running and self._since >= 0.0 and not (steps > self._most).any():
            raise _stalled(self._since, at, running)
        self._most = np.maximum(steps, self._most)
        self._check_after, self._since = self._record.rounds + _MAX_STALLED_ROUNDS, at

    def _check_turns(self, at: float) -> None:
        """Compare leases and steps with those of the last check.

        Steps of copies count when their leases end, so that a lease that lasts is no stall.
        """
        steps, leases = self._virtual.steps(at), self._virtual.leases()
        lasts = not leases or not self._leases or not self._leases.isdisjoint(leases)
        if lasts or (steps > self._steps).any():
            self._fruitless, self._fruitful_at = 0, at
        else:
            self._fruitless += 1
        if self._fruitless >= _MAX_FRUITLESS_CHECKS:
            raise _stalled(self._fruitful_at, at, len(leases))
        self._steps, self._leases = steps, leases
        self._turns_after = self._record.rounds + _MAX_STALLED_ROUNDS


def _stalled(since: float, at: float, running: int) -> InputError:
    return InputError(
        f"no job made a step from {since:,.0f} s to {at:,.0f} s, although {running} run",
        fix="expected restarts (--restore-cost, --physics) shorter than a round (--round),"
        " and speeds above 0",
        field="restart costs",
    )
