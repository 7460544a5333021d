"""The plain max-min program: the least level of the full order, at any load."""

import numpy as np
import pytest

from fairlead.solve.max_min.problem import MaxMinProblem, price_bound
from fairlead.solve.solver import solve_least_level, solve_max_min


@pytest.mark.parametrize("classes", [1, 7, 120, 400, 3000])
@pytest.mark.parametrize("load", [3.0, 1.0, 0.4])
@pytest.mark.parametrize("width", [1, 3, 8])
def test_least_level_is_that_of_the_full_order(classes: int, load: float, width: int) -> None:
    rng = np.random.default_rng(classes * 100 + width)
    gain = rng.uniform(0.2, 2.0, (classes, width)) * (rng.random((classes, width)) < 0.9)
    gain[:, 0] = np.maximum(gain[:, 0], 0.1)
    size = rng.choice([1.0, 2.0, 4.0], classes)
    count = rng.integers(1, 4, classes).astype(float)
    capacity = np.full(width, (size * count).sum() / load / width)
    problem = MaxMinProblem(gain, size, count, capacity)
    solution, full = solve_least_level(problem), solve_max_min(problem)
    assert solution.level.min() == pytest.approx(full.level.min(), rel=1e-8)
    assert (solution.share >= 0).all()
    assert (solution.share.sum(axis=1) <= 1 + 1e-9).all()
    used = ((count * size)[:, None] * solution.share).sum(axis=0)
    assert (used <= capacity * (1 + 1e-9)).all()
    proof = solution.certificate
    assert proof.gap <= 1e-8
    assert price_bound(problem, proof.prices) == pytest.approx(proof.bound, rel=1e-12)


def test_classes_that_cannot_run_do_not_count() -> None:
    problem = MaxMinProblem(
        np.array([[0.0, 2.0], [1.0, 0.0]]), np.ones(2), np.ones(2), np.array([1.0, 0.0])
    )
    solution = solve_least_level(problem)
    np.testing.assert_allclose(solution.level, [0.0, 1.0])


def test_a_hundred_thousand_classes_are_sifted_in_two_steps() -> None:
    rng = np.random.default_rng(3)
    gain = rng.uniform(0.2, 2.0, (60_000, 3))
    problem = MaxMinProblem(gain, np.ones(60_000), np.ones(60_000), np.full(3, 9000.0))
    solution = solve_max_min(problem)
    assert solution.certificate.gap <= 1e-9
    assert solve_least_level(problem).level.min() == pytest.approx(solution.level.min(), rel=1e-9)
