"""Cold solves of many members in about a hundred distinct classes always end in a proof."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.errors import SolveError
from fairlead.solve import solver
from fairlead.solve.max_min.problem import MaxMinProblem, MaxMinSolution
from fairlead.solve.solver import solve_max_min


def crowd(classes: int, load: float, seed: int, members: int = 100_000) -> MaxMinProblem:
    """Return what ``max-min`` solves: gains relative to an equal split, many members a class."""
    rng = np.random.default_rng(seed)
    gain = rng.uniform(0.2, 2.0, (classes, 3)) * np.linspace(1.0, 3.0, 3)
    gain /= gain.mean(axis=1, keepdims=True)
    size = rng.choice([1.0, 1.0, 1.0, 2.0, 4.0], classes)
    count = np.random.default_rng(seed).multinomial(members, np.ones(classes) / classes)
    capacity = np.full(3, np.floor((count * size).sum() / load / 3))
    gain = gain / gain.mean(axis=1, keepdims=True) * (size * members / capacity.sum())[:, None]
    return MaxMinProblem(gain, size, count.astype(float), capacity)


def assert_proved(problem: MaxMinProblem, answer: MaxMinSolution) -> None:
    assert (answer.share >= 0).all()
    assert (answer.share.sum(axis=1) <= 1 + 1e-9).all()
    used = ((problem.count * problem.size)[:, None] * answer.share).sum(axis=0)
    assert (used <= problem.capacity * (1 + 1e-9)).all()
    assert -1e-9 <= answer.certificate.gap <= 1e-9


# Holding classes at their caps was infeasible by rounding, or HiGHS could not prove it infeasible.
@pytest.mark.parametrize(
    ("classes", "load", "seed"),
    [(104, 1.0, 2), (156, 1.0, 0), (156, 1.0, 3), (130, 1.0, 13), (130, 1.1, 3), (200, 0.7, 33)],
)
def test_rounding_at_the_caps_does_not_fail_a_cold_solve(
    classes: int, load: float, seed: int
) -> None:
    problem = crowd(classes, load, seed)
    assert_proved(problem, solve_max_min(problem))


@settings(max_examples=25, deadline=None)
@given(
    classes=st.integers(100, 200),
    load=st.sampled_from([0.7, 0.9, 1.0, 1.1]),
    seed=st.integers(0, 2**32 - 1),
    members=st.sampled_from([1_000, 100_000, 10_000_000]),
)
def test_every_cold_solve_is_proved(classes: int, load: float, seed: int, members: int) -> None:
    problem = crowd(classes, load, seed, members)
    assert_proved(problem, solve_max_min(problem))


def test_prices_answer_where_simplex_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = crowd(50, 1.2, 1)
    monkeypatch.setattr(solver, "_GUESSED_CLASSES", 10_000)
    right = solve_max_min(problem)

    def failing(*_: object) -> None:
        raise SolveError("caps did not settle", status="infeasible", n_classes=50)

    monkeypatch.setattr(solver, "fill", failing)
    answer = solve_max_min(problem)
    assert_proved(problem, answer)
    np.testing.assert_allclose(answer.level, right.level, atol=1e-8)


def test_two_paths_differ_by_no_more_than_prices_amplify_rounding() -> None:
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        gain = rng.uniform(0.2, 2.0, (512, 10)) * np.linspace(1.0, 3.0, 10)
        gain /= gain.mean(axis=1, keepdims=True)
        size = rng.choice([1.0, 1.0, 1.0, 2.0, 4.0], 512)
        problem = MaxMinProblem(gain, size, np.ones(512), np.full(10, size.sum() / 5))
        by_prices, by_simplex = solve_max_min(problem), solver.solve_many(problem, 10_000)
        first = by_prices.stages[0].frozen
        difference = np.abs(by_prices.level - by_simplex.level)
        assert difference[first].max() <= 1e-11
        prices = np.concatenate([stage.prices for stage in by_prices.stages])
        spread = prices.max() / prices[prices > 1e-7].min()
        assert difference.max() <= max(1e-9, 1e-15 * spread)
