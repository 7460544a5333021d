"""Prices that are guessed lead to the same answer as a program from nothing."""

import numpy as np
import pytest

from fairlead.solve import solver
from fairlead.solve.max_min.class_table import ClassTable
from fairlead.solve.max_min.problem import MaxMinProblem
from fairlead.solve.max_min_many.crossover import fill_from_guessed_prices


@pytest.mark.parametrize("width", [2, 3, 5])
@pytest.mark.parametrize("load", [0.8, 1.2, 3.0])
def test_guessed_prices_lead_to_the_answer_of_simplex(
    width: int, load: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solver, "_GUESSED_CLASSES", 10_000)
    solved = 0
    for seed in range(6):
        rng = np.random.default_rng([seed, width, int(10 * load)])
        gain = rng.uniform(0.2, 2.0, (60, width)) * np.linspace(1.0, 2.0, width)
        gain *= rng.random((60, width)) < 0.95
        gain[:, 0] += 0.1
        size = rng.choice([1.0, 1.0, 2.0, 4.0], 60)
        count = rng.integers(0, 40, 60).astype(float)
        capacity = np.full(width, (count * size).sum() / load / width)
        right = solver.solve_max_min(MaxMinProblem(gain, size, count, capacity))
        mine = fill_from_guessed_prices(ClassTable.of(gain, size, capacity > 0), count, capacity)
        if mine is None:
            continue
        solved += 1
        share, stages = mine
        np.testing.assert_allclose((gain * share).sum(axis=1), right.level, atol=1e-8)
        np.testing.assert_allclose(share, right.share, atol=1e-7)
        assert stages[0].t == pytest.approx(right.stages[0].level, rel=1e-8)
    assert solved >= 2
