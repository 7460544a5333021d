"""Samplers: the hyperparameters of a trial by its number, so that a restart repeats none."""

from collections.abc import Mapping
from itertools import islice, product
from math import prod

import numpy as np

from fairlead.model.errors import InputError
from fairlead.model.submission.search import MAX_TRIALS, Search, Value

_REDRAWN = 0.25
"""probability that a clone draws a hyperparameter again"""

Point = Mapping[str, Value]
"""hyperparameter → value"""


def points(search: Search) -> list[Point]:
    """Return the hyperparameters of all trials of a search, in their order."""
    if search.sampler == "grid":
        return _grid(search)
    return [_random(search, trial) for trial in range(search.trials or 0)]


def perturbed_point(search: Search, source: Point, trial: int) -> Point:
    """Return the hyperparameters of a clone; they depend on the seed and its number only.

    Each one that may change is drawn again with a probability of a quarter, or else moves up or
    down (Jaderberg et al. 2017, §4).
    """
    rng = np.random.default_rng([search.seed, trial])
    point = dict(source)
    for label in search.perturbed:
        parameter = search.space[label]
        redrawn, quantile, up = rng.random() < _REDRAWN, rng.random(), rng.random() < 0.5
        point[label] = parameter.at(quantile) if redrawn else parameter.beside(point[label], up=up)
    return point


def _random(search: Search, trial: int) -> Point:
    """Return the point of one trial; it depends on the seed and the number of the trial only."""
    quantiles = np.random.default_rng([search.seed, trial]).random(len(search.space))
    space = zip(search.space.items(), quantiles.tolist(), strict=True)
    return {label: parameter.at(quantile) for (label, parameter), quantile in space}


def _grid(search: Search) -> list[Point]:
    """Return every combination, or the first ``trials`` of them."""
    axes = []
    for label, parameter in search.space.items():
        try:
            axes.append(parameter.listed())
        except InputError as error:
            raise error.within(field=label) from None
    count = prod(len(axis) for axis in axes)
    if search.trials is None and count > MAX_TRIALS:
        fix = f"expected at most {MAX_TRIALS:,} combinations, or trials"
        raise InputError(f"{count:,} combinations", fix=fix, field="space")
    combinations = islice(product(*axes), search.trials)
    return [dict(zip(search.space, values, strict=True)) for values in combinations]
