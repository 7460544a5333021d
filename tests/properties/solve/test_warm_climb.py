"""Climbs from the last prices give the solution of a new climb, and seldom need a program."""

from unittest.mock import patch

import numpy as np
import pytest

from fairlead.model.arrays import FloatArray
from fairlead.model.tenants.tree import ROOT
from fairlead.policies._levels.hierarchy import ClassTree, TreePath
from fairlead.policies.finish_time import RatioPath
from fairlead.solve.max_min.problem import MaxMinProblem
from fairlead.solve.options.filling import FlatPath, WarmFilling, fill_options
from fairlead.solve.options.problem import NO_PARTNER, OptionProblem
from fairlead.solve.paths import warm_climb
from fairlead.solve.paths.filling import climb
from fairlead.solve.paths.warm_climb import WarmClimb
from fairlead.solve.solver import solve_max_min

PROFILES = 6


class Jobs:
    """Jobs of a few profiles that come, progress and leave."""

    def __init__(self, seed: int, width: int, load: float) -> None:
        self.rng = rng = np.random.default_rng([seed, width, round(10 * load)])
        speed = rng.uniform(0.2, 1.0, (PROFILES, width)) * (rng.random((PROFILES, width)) < 0.9)
        speed[:, 0] += 0.1
        self.speed = speed / speed.max(axis=1, keepdims=True)
        self.gang = rng.choice([1.0, 1.0, 2.0, 4.0], PROFILES)
        self.profile = rng.integers(PROFILES, size=24)
        self.left_s = 10 ** rng.uniform(3, 5, 24)
        self.elapsed_s = np.zeros(24)
        devices = self.gang[self.profile].sum() / load
        self.capacity = np.ceil(rng.dirichlet(np.full(width, 4.0)) * devices)

    def advance(self) -> None:
        """Advance the jobs; sometimes replace one by a new one."""
        rng = self.rng
        self.left_s = self.left_s * rng.uniform(0.9, 1.0, len(self.left_s))
        self.elapsed_s = self.elapsed_s + 300.0
        if rng.random() < 0.7:
            rest = np.arange(len(self.left_s)) != rng.integers(len(self.left_s))
            self.profile = np.append(self.profile[rest], rng.integers(PROFILES))
            self.left_s = np.append(self.left_s[rest], 10 ** rng.uniform(3, 5))
            self.elapsed_s = np.append(self.elapsed_s[rest], 0.0)

    @property
    def problem(self) -> MaxMinProblem:
        gain, size = self.speed[self.profile], self.gang[self.profile]
        return MaxMinProblem(gain, size, np.ones(len(size)), self.capacity)

    @property
    def ratio_path(self) -> RatioPath:
        isolated_s = self.elapsed_s * 0.8 + 3.0 * self.left_s
        return RatioPath(self.left_s, self.elapsed_s, isolated_s, np.ones(len(self.left_s)))

    @property
    def tree_path(self) -> TreePath:
        classes, tenants = len(self.profile), 3
        tree = ClassTree(
            np.append([ROOT, ROOT, 0], self.profile % tenants),
            np.ones(tenants + classes),
            np.arange(tenants + classes),
            np.array([False, True, False]),
            np.ones(classes),
        )
        return TreePath(tree, np.ones(classes))


def _assert_same(share: FloatArray, right: FloatArray, problem: MaxMinProblem) -> None:
    np.testing.assert_allclose(
        (problem.gain * share).sum(axis=1), (problem.gain * right).sum(axis=1), atol=1e-8
    )
    np.testing.assert_allclose(share, right, atol=1e-6)


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("load", [0.8, 1.3, 4.0])
def test_a_warm_climb_gives_the_solution_of_a_new_one(width: int, load: float) -> None:
    steps = 8
    with (
        patch.object(warm_climb, "climb", wraps=climb) as climbs,
        patch.object(warm_climb, "solve_max_min", wraps=solve_max_min) as fillings,
    ):
        for seed in range(3):
            jobs = Jobs(seed, width, load)
            by_ratio, by_tenant, by_length = WarmClimb(), WarmClimb(), WarmClimb()
            for _ in range(steps):
                problem = jobs.problem
                for last, path in ((by_ratio, jobs.ratio_path), (by_tenant, jobs.tree_path)):
                    solution = last.climb(problem, path)
                    _assert_same(solution.share, climb(problem, path).share, problem)
                    assert abs(solution.certificate.gap) <= 1e-6
                unit_s = float(np.median(jobs.left_s))
                rate = problem.gain * (unit_s / jobs.left_s)[:, None]
                shorter = MaxMinProblem(rate, problem.size, problem.count, problem.capacity)
                levels = by_length.max_min(shorter, unit_s)
                _assert_same(levels.share, solve_max_min(shorter).share, shorter)
                jobs.advance()
    assert climbs.call_count + fillings.call_count <= 0.65 * 3 * 3 * steps


def test_equal_jobs_at_different_levels_are_told_apart_by_their_order() -> None:
    gain = np.tile([1.0, 0.6, 0.3], (9, 1))
    problem = MaxMinProblem(gain, np.ones(9), np.ones(9), np.array([2.0, 2.0, 2.0]))
    left_s = np.geomspace(1e3, 9e3, 9)
    path = RatioPath(left_s, np.zeros(9), 4.0 * left_s[::-1] + left_s, np.ones(9))
    cold, last = climb(problem, path), WarmClimb()
    for _ in range(2):
        np.testing.assert_allclose(last.climb(problem, path).share, cold.share, atol=1e-9)


def test_a_filling_that_starts_where_the_last_ended_gives_the_same_times() -> None:
    rng = np.random.default_rng(3)
    last = WarmFilling()
    gain = rng.uniform(0.2, 2.0, (12, 3))
    for number in range(6):
        problem = OptionProblem(
            resource=np.tile(np.arange(3), 12),
            size=np.ones(36),
            first=np.repeat(np.arange(12), 3),
            second=np.full(36, NO_PARTNER),
            gain_first=gain.ravel(),
            gain_second=np.zeros(36),
            tie=rng.random(36),
            count=rng.integers(1, 4, 12).astype(float),
            capacity=np.array([4.0, 5.0, 3.0 + number % 2]),
        )
        path = FlatPath(problem.cap)
        warm, cold = last.fill(problem, path), fill_options(problem, path)
        np.testing.assert_allclose(warm.level, cold.level, atol=1e-9)
        np.testing.assert_allclose(warm.time, cold.time, atol=1e-7)
