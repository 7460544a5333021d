"""Speeds learnt while jobs run: data sheets first, then every measurement.

The logarithm of a workload's speed is its level, plus the strength of the accelerator, plus its
affinity to the accelerator. Strengths start from the data sheets and move with the ratios that
all workloads of a tenant have measured; the level comes from the workload's own measurements.
This is the additive part of the Gaussian process (``kernels``) in closed form: its cost grows
with the number of known speeds, so thousands of workloads do not delay a round.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from fairlead.estimate.cells import workload_name
from fairlead.estimate.data_sheet import DataSheet, find_sheet
from fairlead.estimate.first_guess import log_device_speed
from fairlead.estimate.related import Cell, RelatedSpeeds, Scaling, cells_of_model
from fairlead.model.arrays import FloatArray
from fairlead.model.speeds.estimates import (
    DeclaredSpeed,
    KnownSpeeds,
    known_speeds,
    visible_speeds,
)
from fairlead.model.speeds.key import SpeedKey, plain_workload, scope_of

STRENGTH_SD = 0.35
"""standard deviation of an accelerator's log strength around the guess of its data sheet"""
AFFINITY_SD = 0.3
"""standard deviation of a workload's affinity to an accelerator"""
SCALING = 0.85
"""speed of a gang = speed of one device × gang ** SCALING, until it was measured"""
SCALING_SD = 0.15
"""standard deviation of the log speed for each doubling of the gang"""
LEVEL_SD = 2.0
"""standard deviation of the level of a workload of which nothing is known"""


_MIG_DEVICE = re.compile(r"(?P<device>.+?)[-_ ](?:mig[-_ ])?(?P<slices>[1-7])g\.\d+gb")


@dataclass(frozen=True, slots=True)
class DataSheetLearner:
    """Learns speeds from guessed strengths of accelerators and from measurements."""

    strengths: Mapping[str, float]
    """accelerator → natural logarithm of its guessed relative speed; without an entry: 0"""
    process: bool = True
    """whether the speeds of one model are a Gaussian process (``related``), so that batch sizes
    and gangs learn from each other; False: as in earlier versions, whose logs are replayed so"""

    @classmethod
    def of(cls, sheets: Mapping[str, DataSheet]) -> "DataSheetLearner":
        """Return the learner that starts from these data sheets.

        The weakest accelerator has strength 0, so that a device without a data sheet counts as
        weak until a job has measured it.
        """
        guessed = {name: log_device_speed(sheet) for name, sheet in sheets.items()}
        least = min(guessed.values(), default=0.0)
        return cls({name: round(guess - least, 6) for name, guess in guessed.items()})

    def knows(self, accelerator: str) -> bool:
        """Return whether the accelerator, or the one of which it is a MIG device, has a sheet."""
        return _guessed_strength(accelerator, self.strengths) is not None

    def document(self) -> dict[str, float]:
        """Return the strengths, for logs and stored configurations."""
        return dict(self.strengths)

    def estimator(
        self,
        table: Mapping[SpeedKey, float],
        measured: Mapping[SpeedKey, float],
        unknown: float,
    ) -> "LearnedSpeeds":
        """Return the estimates that these known speeds lead to."""
        known = known_speeds(table, measured)
        return LearnedSpeeds(self.strengths, known, unknown, process=self.process)


def stored_learner(stored: Mapping[str, Any]) -> DataSheetLearner | None:
    """Return the learner of a log's header or a stored configuration; None if it has none."""
    if "strengths" not in stored:
        return None
    return DataSheetLearner(stored["strengths"], process=stored.get("process", False))


@dataclass(frozen=True, slots=True)
class _Strengths:
    """Log strengths of accelerators with their covariance."""

    column: Mapping[str, int]
    mean: FloatArray
    covariance: FloatArray

    def of(self, accelerator: str, guess: Callable[[str], float]) -> float:
        """Return the learnt log strength of an accelerator, otherwise the guessed one."""
        at = self.column.get(accelerator)
        return guess(accelerator) if at is None else float(self.mean[at])

    def between(self, one: str, other: str) -> float:
        """Return the covariance of the strengths of two accelerators."""
        if one in self.column and other in self.column:
            return float(self.covariance[self.column[one], self.column[other]])
        return STRENGTH_SD**2 if one == other else 0.0


class LearnedSpeeds:
    """Estimates of the speeds that nobody has measured."""

    def __init__(
        self,
        guessed: Mapping[str, float],
        known: Mapping[str, KnownSpeeds],
        unknown: float,
        *,
        process: bool,
    ) -> None:
        self._guessed, self._known, self._unknown = guessed, known, unknown
        self._process = process
        self._strengths = cache(self._learn_strengths)
        self._models = cache(self._workloads_by_model)
        self._related = cache(self._condition)
        self._estimate = cache(self._mean_and_sd)

    def estimate(
        self, workload: str, gang: int, accelerator: str, declared: tuple[DeclaredSpeed, ...] = ()
    ) -> float:
        """Return the estimated steps per second, rounded so that it is the same everywhere."""
        mean, _ = self._estimate(workload, gang, accelerator, declared)
        return float(f"{math.exp(mean):.6g}")

    def doubt(
        self, workload: str, gang: int, accelerator: str, declared: tuple[DeclaredSpeed, ...] = ()
    ) -> float:
        """Return the standard deviation of the logarithm of an estimate."""
        return self._estimate(workload, gang, accelerator, declared)[1]

    def _mean_and_sd(
        self, workload: str, gang: int, accelerator: str, declared: tuple[DeclaredSpeed, ...]
    ) -> tuple[float, float]:
        if self._process:
            related = self._related(workload, declared)
            if related is not None:
                size = workload_name(plain_workload(workload)).batch_size
                return related.mean_and_sd(Cell(accelerator, gang, size))
        known = self._known.get(workload)
        if not known:
            mean = math.log(self._unknown) + self._guess(accelerator)
            return mean + SCALING * math.log(gang), LEVEL_SD
        here = {key: speed for key, speed in known.items() if key[0] == accelerator}
        level = _at_gang(here or known, gang)
        if here:
            log_speed, doublings = level[accelerator]
            return log_speed, SCALING_SD * doublings
        scope = scope_of(workload)
        strengths = self._strengths(None if scope is None else scope.tenant)
        mean, variance = self._from_elsewhere(strengths, list(level), accelerator)
        mean += sum(log_speed for log_speed, _ in level.values()) / len(level)
        doublings = max(doublings for _, doublings in level.values())
        return mean, math.sqrt(variance + (SCALING_SD * doublings) ** 2)

    def _condition(
        self, workload: str, declared: tuple[DeclaredSpeed, ...]
    ) -> RelatedSpeeds | None:
        """Return the speeds of a workload's model; None if nothing of the model is known."""
        scope = scope_of(workload)
        tenant = None if scope is None else scope.tenant
        plain = plain_workload(workload) or workload
        known = cells_of_model(plain, self._models(tenant).get(workload_name(plain).model, ()))
        size = workload_name(plain).batch_size
        priors = {Cell(name, gang, size): speed for name, gang, speed in declared}
        if not known and not priors:
            return None
        strengths = self._strengths(tenant)
        return RelatedSpeeds(
            known,
            Scaling(SCALING, SCALING_SD, AFFINITY_SD),
            lambda accelerator: strengths.of(accelerator, self._guess),
            strengths.between,
            priors,
        )

    def _workloads_by_model(
        self, tenant: str | None
    ) -> Mapping[str, list[tuple[str, KnownSpeeds]]]:
        """Return model → the visible workloads of it with their known speeds."""
        models: dict[str, list[tuple[str, KnownSpeeds]]] = {}
        for name, speeds in visible_speeds(self._known, tenant).items():
            models.setdefault(workload_name(name).model, []).append((name, speeds))
        return models

    def _from_elsewhere(
        self, strengths: _Strengths, sources: list[str], target: str
    ) -> tuple[float, float]:
        """Return the log ratio of a target to the mean of its sources, and its variance."""
        weight = np.zeros(len(strengths.mean))
        ratio, variance = 0.0, AFFINITY_SD**2 * (1.0 + 1.0 / len(sources))
        for name, share in ((target, 1.0), *((name, -1.0 / len(sources)) for name in sources)):
            if name in strengths.column:
                weight[strengths.column[name]] += share
            else:
                ratio += share * self._guess(name)
                variance += (share * STRENGTH_SD) ** 2
        ratio += float(weight @ strengths.mean)
        return ratio, variance + float(weight @ strengths.covariance @ weight)

    def _learn_strengths(self, tenant: str | None) -> _Strengths:
        """Return the strengths of all accelerators on which the tenant's workloads were measured.

        Every workload tells the differences between its accelerators, not their level: its
        speeds count by the projection that removes their mean.
        """
        visible = visible_speeds(self._known, tenant).values()
        rows = [_at_gang(speeds, 1) for speeds in visible if speeds]
        names = sorted({name for row in rows for name in row})
        column = {name: j for j, name in enumerate(names)}
        guessed = np.array([self._guess(name) for name in names])
        precision = np.eye(len(names)) / STRENGTH_SD**2
        weighted = guessed / STRENGTH_SD**2
        for row in rows:
            if len(row) > 1:
                at = np.array([column[name] for name in row])
                log_speed = np.array([log_speed for log_speed, _ in row.values()])
                projection = np.eye(len(at)) - 1.0 / len(at)
                precision[np.ix_(at, at)] += projection / AFFINITY_SD**2
                weighted[at] += (log_speed - log_speed.mean()) / AFFINITY_SD**2
        covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        return _Strengths(column, covariance @ weighted, covariance)

    def _guess(self, accelerator: str) -> float:
        """Return the guessed log strength of an accelerator; 0 without a data sheet."""
        return _guessed_strength(accelerator, self._guessed) or 0.0


def _guessed_strength(accelerator: str, guessed: Mapping[str, float]) -> float | None:
    """Return the guessed log strength of an accelerator; None without a data sheet.

    A MIG device such as ``h200-3g.71gb`` has three of the seven slices of an ``h200``.
    """
    part = _MIG_DEVICE.fullmatch(accelerator.lower())
    if part is None:
        return find_sheet(accelerator, guessed)
    whole = find_sheet(part["device"], guessed)
    return None if whole is None else whole + math.log(int(part["slices"]) / 7)


def _at_gang(known: KnownSpeeds, gang: int) -> dict[str, tuple[float, float]]:
    """Return accelerator → log speed of the gang there, and the doublings from a known gang."""
    nearest: dict[str, int] = {}
    for name, size in sorted(known):
        if name not in nearest or abs(size - gang) < abs(nearest[name] - gang):
            nearest[name] = size
    return {
        name: (
            math.log(known[name, size]) + SCALING * math.log(gang / size),
            abs(math.log2(gang / size)),
        )
        for name, size in nearest.items()
    }
