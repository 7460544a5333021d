"""Promises of every max-min answer, on random and on deliberately degenerate problems."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.solve.classes import merge
from fairlead.solve.linear import Columns, LinearProgram, solve_lp
from fairlead.solve.max_min.problem import MaxMinProblem, MaxMinSolution, price_bound
from fairlead.solve.solver import MaxMinSolver, solve_max_min

INF = float("inf")


def reference_levels(problem: MaxMinProblem) -> Any:
    """Water-filling the slow way: a program for each level, then one for each class.

    A class is frozen when a program that maximises its own level alone cannot raise it.
    """
    gain = problem.gain * (problem.capacity > 0)
    live = (gain.max(axis=1) > 0) & (problem.count > 0)
    level, fixed = np.zeros(len(gain)), ~live
    while not fixed.all():
        t = _raise(problem, gain, level, ~fixed)
        floor = np.where(fixed, level, t)
        for k in np.flatnonzero(~fixed):
            if _raise(problem, gain, floor, np.arange(len(gain)) == k) <= t + 1e-8:
                fixed[k], level[k] = True, t
    return level


def _raise(problem: MaxMinProblem, gain: Any, level: Any, rising: Any) -> float:
    """Return how high the ``rising`` classes can rise while the rest keeps its level."""
    classes, width = gain.shape
    matrix = np.zeros((2 * classes + width, 1 + classes * width))
    lower, upper = np.full(len(matrix), -INF), np.full(len(matrix), INF)
    for k in range(classes):
        cells = slice(1 + k * width, 1 + (k + 1) * width)
        matrix[k, cells], matrix[classes + k, cells] = gain[k], 1.0
        matrix[k, 0] = -float(rising[k])
        lower[k] = 0.0 if rising[k] else max(level[k] - 1e-11, 0.0)
        upper[classes + k] = 1.0
        for j in range(width):
            matrix[2 * classes + j, 1 + k * width + j] = problem.count[k] * problem.size[k]
    upper[2 * classes :] = problem.capacity
    cost = np.zeros(matrix.shape[1])
    cost[0] = -1.0
    free = np.full(len(cost), INF)
    program = LinearProgram(cost, Columns.dense(matrix), lower, upper, np.zeros(len(cost)), free)
    return -solve_lp(program).objective


@st.composite
def problems(draw: st.DrawFn, most: int = 7, width: int | None = None) -> MaxMinProblem:
    """Small problems: integer gains provoke ties, zeros close resources, loads vary widely."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    classes = draw(st.integers(1, most))
    resources = width or draw(st.integers(1, 4))
    if draw(st.booleans()):
        gain = rng.integers(0, 4, (classes, resources)).astype(float)
    else:
        gain = rng.uniform(0.2, 3.0, (classes, resources))
        gain[rng.random(gain.shape) < 0.15] = 0.0
    size = rng.choice([1.0, 1.0, 2.0, 4.0], classes)
    count = rng.integers(0, 5, classes).astype(float)
    load = draw(st.sampled_from([0.3, 0.7, 1.0, 2.0, 5.0]))
    capacity = np.ceil(rng.dirichlet(np.ones(resources)) * (count * size).sum() / load)
    if draw(st.integers(0, 4)) == 0:
        capacity[rng.integers(resources)] = 0.0
    return MaxMinProblem(gain, size, count, capacity)


def assert_feasible(problem: MaxMinProblem, answer: MaxMinSolution) -> None:
    share = answer.share
    assert (share >= 0).all()
    assert (share.sum(axis=1) <= 1 + 1e-9).all()
    used = ((problem.count * problem.size)[:, None] * share).sum(axis=0)
    assert (used <= problem.capacity * (1 + 1e-9)).all()
    np.testing.assert_allclose(answer.level, (problem.gain * share).sum(axis=1), atol=1e-12)


@settings(max_examples=250, deadline=None)
@given(problems())
def test_levels_are_those_of_slow_water_filling(problem: MaxMinProblem) -> None:
    answer = solve_max_min(problem)
    assert_feasible(problem, answer)
    np.testing.assert_allclose(answer.level, reference_levels(problem), atol=1e-7)


@settings(max_examples=150, deadline=None)
@given(problems(most=12), st.integers(0, 2**32 - 1))
def test_prices_prove_every_stage(problem: MaxMinProblem, seed: int) -> None:
    answer = solve_max_min(problem)
    proof = answer.certificate
    assert proof.bound == price_bound(problem, proof.prices)
    assert -1e-9 <= proof.gap <= 1e-6
    for index in range(len(answer.stages)):
        assert abs(answer.certify_stage(index).gap) <= 1e-6
    rng = np.random.default_rng(seed)
    some = rng.exponential(size=len(problem.capacity)) * (rng.random(len(problem.capacity)) < 0.8)
    live = answer.level[(problem.count > 0) & (answer.level > 0)]
    assert price_bound(problem, some) >= live.min(initial=np.inf) * (1 - 1e-9) or not len(live)


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_merging_members_changes_no_level(problem: MaxMinProblem, seed: int) -> None:
    member = np.repeat(np.arange(len(problem.size)), problem.count.astype(int))
    member = np.random.default_rng(seed).permutation(member)
    ones = np.ones(len(member))
    apart = MaxMinProblem(problem.gain[member], problem.size[member], ones, problem.capacity)
    classes = merge(apart.gain, apart.size)
    chosen = classes.representative
    merged = MaxMinProblem(
        apart.gain[chosen], apart.size[chosen], classes.count.astype(float), problem.capacity
    )
    level = solve_max_min(merged).level[classes.index_of_member]
    np.testing.assert_allclose(level, reference_levels(apart), atol=1e-7)
    # The solver itself treats equals equally, merged or not.
    np.testing.assert_allclose(level, solve_max_min(apart).level, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_a_warm_solver_answers_like_a_cold_one(seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    classes, width = 10, 3
    gain = rng.integers(1, 4, (classes, width)) * 1.0 if ties else rng.random((classes, width))
    size = rng.choice([1.0, 2.0, 4.0], classes)
    count = rng.integers(0, 6, classes).astype(float)
    capacity = rng.integers(2, 14, width).astype(float)
    solver = MaxMinSolver()
    for _ in range(12):
        k = rng.integers(classes)
        count[k] = max(0.0, count[k] + rng.choice([-2, -1, 1, 2]))
        if rng.random() < 0.2:
            capacity[rng.integers(width)] = rng.integers(0, 14)
        if rng.random() < 0.1:
            gain[k] = rng.permutation(gain[k])
        here = rng.permutation(np.flatnonzero(count))
        problem = MaxMinProblem(gain[here], size[here], count[here], capacity.copy())
        warm, cold = solver.solve(problem, here.tolist()), solve_max_min(problem)
        np.testing.assert_allclose(warm.level, cold.level, atol=1e-9)
        np.testing.assert_allclose(warm.share, cold.share, atol=1e-7)


@settings(max_examples=40, deadline=None)
@given(problems(most=10), st.integers(0, 2**32 - 1))
def test_the_order_of_classes_does_not_matter(problem: MaxMinProblem, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(problem.size))
    shuffled = MaxMinProblem(
        problem.gain[order], problem.size[order], problem.count[order], problem.capacity
    )
    here, there = solve_max_min(problem), solve_max_min(shuffled)
    np.testing.assert_allclose(here.level[order], there.level, atol=1e-9)
    np.testing.assert_allclose(here.share[order], there.share, atol=1e-7)


@pytest.mark.parametrize("column", [0, 1])
def test_bounds_hold_whatever_the_prices(column: int) -> None:
    problem = MaxMinProblem(np.array([[1.0, 2.0]]), np.ones(1), np.ones(1), np.ones(2))
    prices = np.zeros(2)
    prices[column] = 1.0
    assert price_bound(problem, prices) >= solve_max_min(problem).level[0]
