"""Estimates of speeds that nobody has measured: unknown is not impossible."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple, Protocol

from fairlead.model.job import Job
from fairlead.model.speeds.key import SpeedKey, plain_workload, scope_of

DEFAULT_SPEED = 1.0
"""steps per second of one device while nothing is known of a workload"""


KnownSpeeds = Mapping[tuple[str, int], float]
"""accelerator and gang → steps per second of one workload, alone on consolidated devices"""


class DeclaredSpeed(NamedTuple):
    """Steps per second of a gang on an accelerator, as a tenant declares them for a job."""

    accelerator: str
    gang: int
    steps_per_s: float


def declared_speeds(job: Job) -> tuple[DeclaredSpeed, ...]:
    """Return the speeds that a job's tenant has declared for it, in a fixed order."""
    return tuple(
        DeclaredSpeed(accelerator, job.gang_on(accelerator), speed)
        for accelerator, speed in sorted(job.declared_speeds.items())
    )


class Estimator(Protocol):
    """Estimates of speeds that a table lacks; ``declared``: those of the job in question."""

    def estimate(
        self, workload: str, gang: int, accelerator: str, declared: tuple[DeclaredSpeed, ...] = ()
    ) -> float:
        """Return the estimated steps per second."""

    def doubt(
        self, workload: str, gang: int, accelerator: str, declared: tuple[DeclaredSpeed, ...] = ()
    ) -> float | None:
        """Return the standard deviation of the logarithm of an estimate; None: not stated."""


class Learner(Protocol):
    """Makes estimators from the speeds known so far; logs and configurations store it."""

    @property
    def process(self) -> bool:
        """Whether the speeds of a tenant's other workloads count for a workload without any."""

    def estimator(
        self,
        table: Mapping[SpeedKey, float],
        measured: Mapping[SpeedKey, float],
        unknown: float,
    ) -> Estimator:
        """Return the estimator; ``unknown`` is the speed of one device for an unknown workload."""

    def document(self) -> dict[str, float]:
        """Return the learner's data, from which the same learner can be made again."""


def known_speeds(
    table: Mapping[SpeedKey, float], measured: Mapping[SpeedKey, float]
) -> dict[str, KnownSpeeds]:
    """Return workload → its speeds; a measured one replaces the table's within its tenant."""
    known: dict[str, dict[tuple[str, int], float]] = {}
    for key, speed in table.items():
        if speed > 0.0 and key.partner is None and key.placement == "consolidated":
            known.setdefault(key.workload, {})[key.accelerator, key.gang] = speed
    for key, speed in measured.items():
        listed = known.get(plain_workload(key.workload), {})
        own = known.setdefault(key.workload, dict(listed))
        if speed > 0.0:
            own[key.accelerator, key.gang] = speed
        else:  # it does not fit there
            own.pop((key.accelerator, key.gang), None)
    return dict(known)


def visible_speeds(
    known: Mapping[str, KnownSpeeds], tenant: str | None
) -> Mapping[str, KnownSpeeds]:
    """Return workload → its speeds in the table, or as the tenant has measured them."""
    chosen: dict[str, KnownSpeeds] = {}
    for name, speeds in known.items():
        scope = scope_of(name)
        if scope is None or scope.tenant == tenant:
            chosen[plain_workload(name) or name] = speeds
    return chosen


class SpeedEstimates:
    """Estimates a workload's unknown speed from its speeds elsewhere and from other workloads.

    Uses the speeds of jobs alone on consolidated devices. ``unknown`` is the speed of one device
    for a workload without any. A measured speed counts within its tenant only.
    """

    def __init__(
        self,
        table: Mapping[SpeedKey, float],
        measured: Mapping[SpeedKey, float],
        unknown: float = DEFAULT_SPEED,
    ) -> None:
        self._unknown = unknown
        self._by_workload = known_speeds(table, measured)
        self._ratio = cache(self._mean_ratio)

    def estimate(
        self, workload: str, gang: int, accelerator: str, declared: tuple[DeclaredSpeed, ...] = ()
    ) -> float:
        """Return the mean of the workload's known speeds, each scaled to the gang and accelerator.

        A speed on another accelerator is scaled as other workloads are on both, or not at all if
        none was measured on both. Without doubts nothing can be weighed against a declared speed,
        so these do not count.
        """
        del declared
        known = self._by_workload.get(workload)
        scope = scope_of(workload)
        tenant = None if scope is None else scope.tenant
        if not known:
            return gang * self._unknown
        elsewhere = {name for name, _ in known}
        if accelerator in elsewhere:
            elsewhere = {accelerator}
        return _mean(
            _at_gang(known, name, gang) * self._ratio(tenant, name, accelerator)
            for name in sorted(elsewhere)
        )

    def _mean_ratio(self, tenant: str | None, source: str, target: str) -> float:
        """Return the mean speed on ``target`` over that on ``source``; 1 if none has both."""
        if source == target:
            return 1.0
        ratios = [
            speeds[target, gang] / speed
            for speeds in visible_speeds(self._by_workload, tenant).values()
            for (name, gang), speed in speeds.items()
            if name == source and (target, gang) in speeds
        ]
        return _mean(ratios) if ratios else 1.0

    def doubt(
        self, workload: str, gang: int, accelerator: str, declared: tuple[DeclaredSpeed, ...] = ()
    ) -> None:
        """State no doubt: these estimates are plain means."""
        del workload, gang, accelerator, declared


def _at_gang(known: KnownSpeeds, accelerator: str, gang: int) -> float:
    """Return the speed of a gang, in proportion to the nearest known gang there."""
    gangs = [size for name, size in known if name == accelerator]
    nearest = min(gangs, key=lambda size: (abs(size - gang), size))
    return known[accelerator, nearest] * gang / nearest


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
