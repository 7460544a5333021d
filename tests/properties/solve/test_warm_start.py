"""Going on from the last answer gives the answer, and is what a crowded solver mostly does."""

import numpy as np
import pytest

from fairlead.solve import MaxMinProblem, MaxMinSolver, solve_max_min
from fairlead.solve.max_min.class_table import ClassTable
from fairlead.solve.max_min.warm_start import Onward


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("load", [1.2, 2.0, 5.0])
def test_answers_that_go_on_from_the_last_are_those_of_a_new_solver(
    width: int, load: float
) -> None:
    found = 0
    for seed in range(12):
        rng = np.random.default_rng([seed, width, int(10 * load)])
        gain = rng.uniform(0.2, 2.0, (12, width)) * (rng.random((12, width)) < 0.9)
        gain[:, 0] += 0.1
        size = rng.choice([1.0, 1.0, 2.0, 4.0], 12)
        count = rng.integers(1, 6, 12).astype(float)
        capacity = np.ceil(rng.dirichlet(np.full(width, 4.0)) * (count * size).sum() / load)
        onward: Onward | None = None
        for _ in range(15):
            k = rng.integers(12)
            count[k] = max(0.0, count[k] + rng.choice([-3, -1, 1, 2]))
            problem = MaxMinProblem(gain, size, count.copy(), capacity)
            right = solve_max_min(problem)
            mine = None if onward is None else onward.solve(count)
            if mine is not None:
                found += 1
                np.testing.assert_allclose(np.maximum(mine.share, 0.0), right.share, atol=1e-9)
                assert mine.stages[0].t == pytest.approx(right.stages[0].level, rel=1e-9)
                continue
            onward = None
            if right.stages and right.stages[0].prices.any():
                new = Onward(ClassTable.of(gain, size, capacity > 0), capacity)
                started = new.start(right.stages[0].level, right.stages[0].prices, count > 0)
                onward = new if started else None
    assert found > 50


def test_a_crowded_solver_goes_on_and_proves_it() -> None:
    rng = np.random.default_rng(0)
    gain = rng.uniform(0.3, 2.0, (26, 3))
    size = rng.choice([1.0, 1.0, 2.0, 8.0], 26)
    count = rng.multinomial(150, np.ones(26) / 26).astype(float)
    solver, went_on = MaxMinSolver(), 0
    for _ in range(200):
        k = rng.integers(26)
        count[k] += -1 if count.sum() > 150 and count[k] > 0 else 1
        problem = MaxMinProblem(gain, size, count.copy(), np.full(3, 36.0))
        found = solver.solve(problem, range(26))
        assert found.certificate.gap < 1e-9
        assert solver._warm is not None
        went_on += solver._warm._warm_start is not None
    assert went_on > 180
