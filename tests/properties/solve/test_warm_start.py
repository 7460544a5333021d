"""Warm starts give the answer of a cold solve, and are the usual case of a crowded solver."""

import numpy as np
import pytest

from fairlead.solve.max_min.class_table import ClassTable
from fairlead.solve.max_min.problem import MaxMinProblem
from fairlead.solve.max_min.warm_start import WarmStage
from fairlead.solve.solver import MaxMinSolver, solve_max_min


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("load", [1.2, 2.0, 5.0])
def test_warm_starts_give_the_answers_of_a_new_solver(width: int, load: float) -> None:
    answered = 0
    for seed in range(12):
        rng = np.random.default_rng([seed, width, int(10 * load)])
        gain = rng.uniform(0.2, 2.0, (12, width)) * (rng.random((12, width)) < 0.9)
        gain[:, 0] += 0.1
        size = rng.choice([1.0, 1.0, 2.0, 4.0], 12)
        count = rng.integers(1, 6, 12).astype(float)
        capacity = np.ceil(rng.dirichlet(np.full(width, 4.0)) * (count * size).sum() / load)
        warm: WarmStage | None = None
        for _ in range(15):
            k = rng.integers(12)
            count[k] = max(0.0, count[k] + rng.choice([-3, -1, 1, 2]))
            problem = MaxMinProblem(gain, size, count.copy(), capacity)
            right = solve_max_min(problem)
            answer = None if warm is None else warm.solve(count)
            if answer is not None:
                answered += 1
                np.testing.assert_allclose(np.maximum(answer.share, 0.0), right.share, atol=1e-9)
                assert answer.stages[0].t == pytest.approx(right.stages[0].level, rel=1e-9)
                continue
            warm = None
            if right.stages and right.stages[0].prices.any():
                new = WarmStage(ClassTable.of(gain, size, capacity > 0), capacity)
                started = new.start(right.stages[0].level, right.stages[0].prices, count > 0)
                warm = new if started else None
    assert answered > 50


def test_a_crowded_solver_mostly_starts_warm_and_proves_its_answers() -> None:
    rng = np.random.default_rng(0)
    gain = rng.uniform(0.3, 2.0, (26, 3))
    size = rng.choice([1.0, 1.0, 2.0, 8.0], 26)
    count = rng.multinomial(150, np.ones(26) / 26).astype(float)
    solver, warm_starts = MaxMinSolver(), 0
    for _ in range(200):
        k = rng.integers(26)
        count[k] += -1 if count.sum() > 150 and count[k] > 0 else 1
        problem = MaxMinProblem(gain, size, count.copy(), np.full(3, 36.0))
        solution = solver.solve(problem, range(26))
        assert solution.certificate.gap < 1e-9
        assert solver._warm is not None
        warm_starts += solver._warm._warm_start is not None
    assert warm_starts > 180
