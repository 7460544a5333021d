"""The climb along a path: against exact programs, and what it promises."""

import numpy as np
import pytest

from fairlead.model.arrays import FloatArray
from fairlead.model.tenants.tree import ROOT
from fairlead.policies._levels.hierarchy import ClassTree, TreePath
from fairlead.policies.finish_time import RatioPath
from fairlead.solve.linear import Columns, LinearProgram, solve_lp
from fairlead.solve.max_min.problem import MaxMinProblem
from fairlead.solve.paths.filling import climb, climb_first_stage, path_bound
from fairlead.solve.paths.path import Path
from fairlead.solve.solver import solve_max_min

INF = float("inf")


class Alike:
    """Everyone at theta or at its cap: the path of max-min."""

    def __init__(self, cap: FloatArray) -> None:
        self.cap = cap

    @property
    def top(self) -> float:
        return float(self.cap.max(initial=0.0))

    def level(self, theta: float) -> FloatArray:
        level: FloatArray = np.minimum(theta, self.cap)
        return level

    def rate(self, theta: float) -> FloatArray:
        return (self.cap > theta).astype(float)

    def within(self, cap: FloatArray) -> "Alike":
        return Alike(cap)


def _problem(rng: np.random.Generator, classes: int, load: float) -> MaxMinProblem:
    width = int(rng.integers(1, 5))
    if rng.random() < 0.3:
        gain = rng.integers(1, 5, (classes, width)).astype(float)
    else:
        gain = rng.uniform(0.3, 1.0, (classes, width)) * rng.uniform(0.5, 3.0, width)
    gain[rng.random(gain.shape) < 0.05] = 0.0
    size = rng.choice([1.0, 1.0, 2.0, 4.0], classes)
    capacity = np.ceil(rng.dirichlet(np.full(width, 3.0)) * size.sum() / load)
    return MaxMinProblem(gain, size, np.ones(classes), capacity)


def _tree_path(rng: np.random.Generator, problem: MaxMinProblem) -> TreePath:
    tenants, classes = int(rng.integers(1, 9)), len(problem.size)
    parent = [
        ROOT if i == 0 or rng.random() < 0.5 else int(rng.integers(i)) for i in range(tenants)
    ]
    tree = ClassTree(
        np.array(parent + rng.integers(tenants, size=classes).tolist()),
        rng.choice([1.0, 2.0, 3.0], tenants + classes),
        rng.permutation(tenants + classes),
        rng.random(tenants) < 0.5,
        np.ones(classes),
    )
    return TreePath(tree, problem.gain.max(axis=1))


def _ratio_path(rng: np.random.Generator, problem: MaxMinProblem) -> RatioPath:
    classes = len(problem.size)
    alone = 10 ** rng.uniform(2, 5, classes)
    elapsed = alone * rng.uniform(0, 3, classes)
    isolated = alone * rng.uniform(1, 9, classes) + elapsed * rng.uniform(0.2, 1, classes)
    return RatioPath(alone, elapsed, isolated, problem.gain.max(axis=1))


def _assert_feasible(problem: MaxMinProblem, share: FloatArray) -> None:
    assert (share >= 0).all()
    assert (share.sum(axis=1) <= 1 + 1e-9).all()
    used = ((problem.count * problem.size)[:, None] * share).sum(axis=0)
    assert (used <= problem.capacity * (1 + 1e-9)).all()


@pytest.mark.parametrize("classes", [6, 400])
@pytest.mark.parametrize("load", [0.5, 1.0, 1.3, 4.0])
def test_when_all_rise_alike_the_levels_are_those_of_max_min(classes: int, load: float) -> None:
    rng = np.random.default_rng([classes, round(10 * load)])
    for _ in range(8 if classes < 100 else 2):
        problem = _problem(rng, classes, load)
        answer = climb(problem, Alike(problem.gain.max(axis=1)))
        exact = solve_max_min(problem)
        _assert_feasible(problem, answer.share)
        np.testing.assert_allclose(answer.level, exact.level, atol=1e-7)
        # Both take the least device time; their totals are the same.
        held = problem.size[:, None] * (answer.share - exact.share)
        assert abs(held.sum()) <= 1e-4 * problem.size.sum()


@pytest.mark.parametrize("kind", ["tree", "ratio"])
@pytest.mark.parametrize("load", [0.6, 1.0, 1.5, 5.0])
def test_deciding_most_classes_by_prices_changes_no_level(kind: str, load: float) -> None:
    rng = np.random.default_rng([len(kind), round(10 * load)])
    for _ in range(3):
        problem = _problem(rng, 300, load)
        path: Path = (_tree_path if kind == "tree" else _ratio_path)(rng, problem)
        fast, slow = climb(problem, path, few=40), climb(problem, path, few=1000)
        _assert_feasible(problem, fast.share)
        np.testing.assert_allclose(fast.level, slow.level, atol=1e-6)
        assert len(fast.stages) == len(slow.stages)


def _highest(problem: MaxMinProblem, level: FloatArray, rise: FloatArray) -> float:
    """Return the greatest d for which ``level + d · rise`` is feasible, by one dense program."""
    classes, width = problem.gain.shape
    matrix = np.zeros((2 * classes + width, 1 + classes * width))
    lower, upper = np.full(len(matrix), -INF), np.full(len(matrix), INF)
    for k in range(classes):
        cells = slice(1 + k * width, 1 + (k + 1) * width)
        matrix[k, cells], matrix[classes + k, cells] = problem.gain[k], 1.0
        matrix[k, 0], lower[k], upper[classes + k] = -rise[k], level[k], 1.0
        for j in range(width):
            matrix[2 * classes + j, 1 + k * width + j] = problem.count[k] * problem.size[k]
    upper[2 * classes :] = problem.capacity
    cost = np.zeros(matrix.shape[1])
    cost[0] = -1.0
    free = np.full(len(cost), INF)
    program = LinearProgram(cost, Columns.dense(matrix), lower, upper, np.zeros(len(cost)), free)
    return -solve_lp(program).objective


@pytest.mark.parametrize("load", [0.7, 1.0, 1.5, 4.0])
def test_the_first_stage_ends_where_no_shares_reach_further(load: float) -> None:
    rng = np.random.default_rng(round(10 * load))
    bound = 0
    for number in range(30):
        problem = _problem(rng, 8, load)
        path = (_tree_path if number % 2 else _ratio_path)(rng, problem)
        answer = climb(problem, path)
        reach, top = answer.theta, answer.path.top
        # Its levels are feasible, and those a little beyond are not.
        assert _highest(problem, np.zeros(8), answer.path.level(reach * (1 - 1e-7))) >= 1 - 1e-9
        if reach < top * (1 - 1e-6):
            bound += 1
            beyond = answer.path.level(reach * (1 + 1e-5))
            assert _highest(problem, np.zeros(8), beyond) < 1
    assert bound >= 3


@pytest.mark.parametrize("classes", [7, 250])
def test_a_checker_recomputes_the_bound_from_the_prices(classes: int) -> None:
    rng = np.random.default_rng(classes)
    for number in range(12):
        problem = _problem(rng, classes, float(rng.choice([0.7, 1.0, 2.0])))
        path = (_tree_path if number % 2 else _ratio_path)(rng, problem)
        answer = climb(problem, path)
        proof = answer.certificate
        assert proof.bound == path_bound(problem, answer.path, proof.prices)
        assert abs(proof.gap) <= 1e-6
        some = rng.exponential(size=len(problem.capacity))
        assert path_bound(problem, answer.path, some) >= answer.reached() * (1 - 1e-9)


def test_nobody_stopped_could_have_risen() -> None:
    rng = np.random.default_rng(11)
    for number in range(40):
        problem = _problem(rng, 6, float(rng.choice([0.6, 1.0, 1.7])))
        path = (_tree_path if number % 2 else _ratio_path)(rng, problem)
        level = climb(problem, path).level
        for k in range(6):
            alone = (np.arange(6) == k).astype(float)
            assert _highest(problem, level * (1 - 1e-10) - 1e-12, alone) <= 1e-6


def test_a_class_that_cannot_run_or_has_no_members_stands_at_nothing() -> None:
    gain = np.array([[1.0, 2.0], [0.0, 0.0], [2.0, 1.0], [3.0, 0.0]])
    problem = MaxMinProblem(gain, np.ones(4), np.array([3.0, 1.0, 0.0, 2.0]), np.array([1.0, 1.0]))
    answer = climb(problem, Alike(gain.max(axis=1)))
    assert (answer.level[[1, 2]] == 0).all()
    np.testing.assert_allclose(answer.level[[0, 3]], solve_max_min(problem).level[[0, 3]])
    assert abs(answer.certificate.gap) <= 1e-9


def test_the_order_of_classes_does_not_matter() -> None:
    rng = np.random.default_rng(12)
    for _ in range(20):
        problem = _problem(rng, 9, 1.5)
        order = rng.permutation(9)
        there = MaxMinProblem(
            problem.gain[order], problem.size[order], problem.count, problem.capacity
        )
        a = climb(problem, Alike(problem.gain.max(axis=1)))
        b = climb(there, Alike(there.gain.max(axis=1)))
        np.testing.assert_allclose(a.level[order], b.level, atol=1e-8)


def test_one_scaled_program_stays_on_the_way_and_says_how_far_behind() -> None:
    rng = np.random.default_rng(13)
    for number in range(20):
        problem = _problem(rng, 30, 2.0)
        path = (_tree_path if number % 2 else _ratio_path)(rng, problem)
        rough, exact = climb_first_stage(problem, path), climb(problem, path)
        _assert_feasible(problem, rough.share)
        assert 0 < rough.reached() <= exact.theta * (1 + 1e-6)
        assert rough.certificate.bound >= exact.theta * (1 - 1e-9)
