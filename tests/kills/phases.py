"""Phases of a run with gangs that change their size: few jobs, so that they grow, then many."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.kills.deployment import COPIES_POLICY, ELASTIC_POLICY, KillSite

_PHASE_S = 15.0


def is_of_growth(point: str) -> bool:
    """Return whether processes pass a failpoint only where a gang changes its size."""
    return point.split(".")[1] in ("resize", "growth")


def is_of_copies(point: str) -> bool:
    """Return whether processes pass a failpoint only where a job trains in copies."""
    return point.split(".")[1] == "merge"


@dataclass(frozen=True, slots=True)
class JobMix:
    """Jobs to be kept waiting and running on the six devices of a site."""

    active: int
    gangs: tuple[int, ...]
    """sizes of which one is drawn for each job"""
    longer: int = 1
    """factor of their steps"""


_MANY = JobMix(9, (1, 1, 2))
_FEW = JobMix(3, (2, 2, 1), longer=3)
"""leaves devices idle, for long enough that gangs grow; each new single job shrinks one"""


@dataclass
class Phases:
    """The jobs and the policy of a site, which change every few seconds if gangs are elastic.

    A policy that a fault has set stays until the next phase.
    """

    site: KillSite
    now: Callable[[], float] = time.monotonic
    jobs: JobMix = _MANY
    _until: float = field(default=0.0, init=False)
    _number: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._cycle = [(ELASTIC_POLICY, _FEW), (ELASTIC_POLICY, _MANY)]
        if self.site.copies:
            self._cycle.append((COPIES_POLICY, _MANY))

    def favour(self, point: str) -> None:
        """Begin the phase in which processes pass a failpoint, if only one has such processes."""
        if point.split(".")[1] == "resize":  # where a gang shrinks: when there are many jobs
            self._number, self._until = 1, 0.0
        elif is_of_growth(point):
            self._number, self._until = 0, 0.0
        elif is_of_copies(point):
            self._number, self._until = len(self._cycle) - 1, 0.0

    def follow(self, rng: random.Random) -> None:
        """Begin the next phase if the present one has ended."""
        if not self.site.elastic or self.now() < self._until:
            return
        policy, self.jobs = self._cycle[self._number % len(self._cycle)]
        self._number += 1
        self._until = self.now() + _PHASE_S * rng.uniform(0.7, 1.3)
        self.site.change_policy(policy, self.site.round_s)
