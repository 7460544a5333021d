"""Estimates from the speeds of one model: other batch sizes, gangs and accelerators.

The Gaussian process of ``kernels``, restricted to the cells of one model and to the terms that are
left then. A few cells take microseconds, so that no live round waits for it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from fairlead.estimate.cells import workload_name
from fairlead.estimate.kernels import BATCH_LENGTH, GANG_LENGTH
from fairlead.model.speeds.estimates import KnownSpeeds

MAX_CELLS = 16
"""known cells that count: those of the workload itself, then those with similar batch sizes"""
LEVEL_VARIANCE = 1e4
"""prior variance of a model's level: nothing is known of it"""
BATCH_SLOPE, BATCH_SLOPE_SD = -0.4, 0.35
"""natural logarithm of the speed for each doubling of the batch size"""
BATCH_SD = 0.15
"""standard deviation of a smooth departure from that slope"""
GANG_SD = 0.3
"""standard deviation of a smooth departure of gangs from their slope"""
AFFINITY_SLOPE_SD = 0.15
"""standard deviation of the slopes of one accelerator, in batch size and in gang"""
CELL_SD = 0.18
"""standard deviation of a cell around all of these"""
EXAGGERATION_SD = 0.6
"""standard deviation of the log factor by which a tenant is wrong about all of its speeds"""
DECLARED_SD = 0.35
"""standard deviation of a single declared speed around that factor"""


class Scaling(NamedTuple):
    """Speed of gangs and affinity to accelerators, as the additive estimates have them."""

    gang: float
    """speed of a gang = speed of one device × gang ** this"""
    gang_sd: float
    affinity_sd: float


class Cell(NamedTuple):
    """A gang of the model on an accelerator, with a batch size."""

    accelerator: str
    gang: int
    batch_size: int | None


class _Place(NamedTuple):
    """A cell in the space of the process."""

    accelerator: str
    batch: float
    """binary logarithm of the batch size, less the mean of the known ones; 0 without one"""
    gang: float
    """binary logarithm of the gang"""


class RelatedSpeeds:
    """Joint distribution of the log speeds of one model, given its known and declared cells.

    ``strength``: covariance of the log strengths of two accelerators; ``guess``: log strength.
    ``declared``: the word of a tenant. All of its speeds may be wrong by the same factor, so a
    measurement of one of them corrects the others, too.
    """

    def __init__(
        self,
        known: Mapping[Cell, float],
        scaling: Scaling,
        guess: Callable[[str], float],
        strength: Callable[[str, str], float],
        declared: Mapping[Cell, float] = MappingProxyType({}),
    ) -> None:
        self._scaling, self._guess, self._strength = scaling, guess, strength
        entries = [*known.items(), *declared.items()]
        sizes = [math.log2(cell.batch_size) for cell, _ in entries if cell.batch_size]
        self._middle = sum(sizes) / len(sizes) if sizes else 0.0
        self._known = [self._place(cell) for cell, _ in entries]
        covariance = np.array(
            [[self._covariance(one, other) for other in self._known] for one in self._known]
        )
        covariance[np.diag_indices(len(entries))] += CELL_SD**2
        if declared:
            block = slice(len(known), None)
            covariance[block, block] += DECLARED_SD**2 * np.eye(len(declared)) + EXAGGERATION_SD**2
        self._inverse = np.linalg.inv(covariance)
        rest = [
            math.log(speed) - self._prior(place)
            for (_, speed), place in zip(entries, self._known, strict=True)
        ]
        self._alpha = self._inverse @ rest

    def mean_and_sd(self, cell: Cell) -> tuple[float, float]:
        """Return the estimated log speed of a cell and its standard deviation."""
        place = self._place(cell)
        across = np.array([self._covariance(place, known) for known in self._known])
        variance = self._covariance(place, place) - float(across @ self._inverse @ across)
        mean = self._prior(place) + float(across @ self._alpha)
        return mean, math.sqrt(max(variance, 0.0) + CELL_SD**2)

    def _place(self, cell: Cell) -> _Place:
        batch = math.log2(cell.batch_size) - self._middle if cell.batch_size else 0.0
        return _Place(cell.accelerator, batch, math.log2(cell.gang))

    def _prior(self, place: _Place) -> float:
        """Return the log speed of a cell before anything is known of the model."""
        gang = self._scaling.gang * math.log(2.0) * place.gang
        return self._guess(place.accelerator) + gang + BATCH_SLOPE * place.batch

    def _covariance(self, one: _Place, other: _Place) -> float:
        (accelerator, batch, gang), (accelerator_2, batch_2, gang_2) = one, other
        slopes = BATCH_SLOPE_SD**2 * batch * batch_2 + self._scaling.gang_sd**2 * gang * gang_2
        smooth = BATCH_SD**2 * math.exp(-0.5 * ((batch - batch_2) / BATCH_LENGTH) ** 2)
        smooth += GANG_SD**2 * math.exp(-0.5 * ((gang - gang_2) / GANG_LENGTH) ** 2)
        own = 0.0
        if accelerator == accelerator_2:
            own = AFFINITY_SLOPE_SD**2 * (batch * batch_2 + gang * gang_2)
            own += self._scaling.affinity_sd**2
        return LEVEL_VARIANCE + self._strength(accelerator, accelerator_2) + slopes + smooth + own


def cells_of_model(workload: str, known: Iterable[tuple[str, KnownSpeeds]]) -> dict[Cell, float]:
    """Return the known speeds of a workload's model, at most the nearest ``MAX_CELLS``."""
    name = workload_name(workload)
    near: list[tuple[float, Cell, float]] = []
    for other, speeds in known:
        size = workload_name(other).batch_size
        distance = 0.0 if other == workload else math.inf
        if distance and size is not None and name.batch_size is not None:
            distance = 1.0 + abs(math.log2(size / name.batch_size))
        near += [
            (distance, Cell(accelerator, gang, size), speed)
            for (accelerator, gang), speed in speeds.items()
        ]
    near.sort(key=lambda item: (item[0], *item[1][:2], item[1].batch_size or 0))
    return {cell: speed for _, cell, speed in reversed(near[:MAX_CELLS])}
