"""Programs over options that begin at the last basis give the solution of a new one."""

from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.policies.finish_time import RatioPath
from fairlead.solve import linear
from fairlead.solve.options.filling import FlatPath, WarmFilling, fill_options
from fairlead.solve.options.level_sum import WarmLevelSum
from fairlead.solve.options.objectives import best_sum
from fairlead.solve.options.pool import AllOptions
from fairlead.solve.options.problem import NO_PARTNER, OptionProblem
from fairlead.solve.options.warm_sum import WarmSum

PROFILES, WIDTH = 7, 3


class Jobs:
    """Jobs of a few profiles, alone or packed in pairs, that come and leave."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.speed = rng.uniform(0.2, 1.0, (PROFILES, WIDTH))
        self.beside = rng.uniform(0.3, 0.9, (PROFILES, PROFILES, WIDTH))
        self.numbers = np.arange(14)
        self.profile = rng.integers(PROFILES, size=14)
        self.left_s = 10 ** rng.uniform(3, 5, 14)

    def advance(self) -> None:
        """Advance the jobs; one of them leaves and another one arrives."""
        rest = np.arange(len(self.numbers)) != self.rng.integers(len(self.numbers))
        self.numbers = np.append(self.numbers[rest], self.numbers.max() + 1)
        self.profile = np.append(self.profile[rest], self.rng.integers(PROFILES))
        left_s = self.left_s[rest] * self.rng.uniform(0.9, 1.0, rest.sum())
        self.left_s = np.append(left_s, 10 ** self.rng.uniform(3, 5))

    def problem(self, profile: IntArray, count: IntArray, scale: FloatArray) -> OptionProblem:
        """Return the options of classes with these profiles and counts."""
        rows = [
            (j, k, NO_PARTNER, self.speed[p, j] * scale[k], 0.0)
            for k, p in enumerate(profile)
            for j in range(WIDTH)
        ]
        for a, b in combinations_with_replacement(range(len(profile)), 2):
            p, q = profile[a], profile[b]
            for j in range(WIDTH if a != b or count[a] > 1 else 0):
                own = self.speed[p, j] * self.beside[p, q, j] * scale[a]
                rows.append((j, a, b, own, self.speed[q, j] * self.beside[q, p, j] * scale[b]))
        resource, first, second, own, other = zip(*rows, strict=True)
        return OptionProblem(
            count=count.astype(float),
            capacity=np.array([2.0, 3.0, 1.0]),
            resource=np.array(resource),
            size=np.ones(len(rows)),
            first=np.array(first),
            second=np.array(second),
            gain_first=np.array(own),
            gain_second=np.array(other),
            tie=np.random.default_rng(len(rows)).random(len(rows)),
        )

    @property
    def by_profile(self) -> tuple[OptionProblem, IntArray]:
        profile, count = np.unique(self.profile, return_counts=True)
        return self.problem(profile, count, np.ones(len(profile))), profile

    @property
    def by_job(self) -> OptionProblem:
        return self.problem(self.profile, np.ones(14, int), np.ones(14))


@pytest.mark.parametrize("seed", range(3))
def test_fillings_from_the_last_basis_give_the_levels_and_times_of_new_ones(seed: int) -> None:
    jobs, level, ratio = Jobs(seed), WarmFilling(), WarmFilling()
    for _ in range(8):
        problem, profile = jobs.by_profile
        warm = level.fill(problem, FlatPath(problem.cap), keys=profile.astype(np.uint64))
        cold = fill_options(problem, FlatPath(problem.cap))
        np.testing.assert_allclose(warm.level, cold.level, atol=1e-8)
        np.testing.assert_allclose(warm.time, cold.time, atol=1e-7)
        assert abs(warm.certify_least().gap) <= 1e-8
        problem = jobs.by_job
        path = RatioPath(jobs.left_s, 0.1 * jobs.left_s, 3 * jobs.left_s, np.ones(14))
        bounded = path.within(problem.cap)
        warm = ratio.fill(problem, bounded, keys=jobs.numbers.astype(np.uint64))
        np.testing.assert_allclose(warm.level, fill_options(problem, bounded).level, atol=1e-8)
        assert abs(warm.certify_theta().gap) <= 1e-6
        jobs.advance()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_tied", [False, True])
def test_sums_from_the_last_basis_give_the_times_of_new_ones(seed: int, is_tied: bool) -> None:
    jobs, last = Jobs(seed), WarmSum()
    for _ in range(8):
        worth = np.ones(14) if is_tied else 1 / np.sqrt(jobs.left_s)
        if is_tied:
            jobs.profile = jobs.profile % 2
        problem = jobs.problem(jobs.profile, np.ones(14, int), worth)
        value = problem.gain_first + problem.gain_second
        warm = last.best(problem, value, jobs.numbers.astype(np.uint64))
        cold = best_sum(problem, value)
        assert warm.reached == pytest.approx(cold.reached, rel=1e-9)
        np.testing.assert_allclose(warm.time, cold.time, atol=1e-7)
        assert warm.proof is not None
        assert abs(warm.proof.gap) <= 1e-8
        jobs.advance()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_long", [False, True])
def test_sums_at_the_least_level_from_the_last_basis_are_those_of_new_ones(
    seed: int, is_long: bool
) -> None:
    """The least level is set by devices or, beside a very long job, by that job's cap."""
    jobs, last = Jobs(seed), WarmLevelSum()
    for unit in (1.0, 10.0, 0.1, 1.0, 2.0, 1.0):
        jobs.left_s = jobs.left_s.clip(8e3, 1e4) * jobs.speed[jobs.profile].max(axis=1)
        jobs.left_s[3] *= 1e3 if is_long else 1.0
        problem = jobs.problem(jobs.profile, np.ones(14, int), unit * 1e4 / jobs.left_s)
        worth = np.append(np.sqrt(jobs.left_s), 0.0)
        value = problem.gain_first * worth[problem.first]
        value += problem.gain_second * worth[problem.second]
        keys, pool = jobs.numbers.astype(np.uint64), AllOptions(problem, value)
        warm, cold = (state.best(pool, unit, keys) for state in (last, WarmLevelSum()))
        np.testing.assert_allclose(warm.time, cold.time, atol=1e-7)
        filled = fill_options(problem, FlatPath(problem.cap))
        least = filled.level.min()
        assert (least == pytest.approx(problem.cap.min(), rel=1e-9)) == is_long
        assert warm.level.min() == pytest.approx(least, rel=1e-9)
        assert (value * warm.time).sum() >= (value * filled.time).sum() * (1 - 1e-4)
        assert abs(warm.certify_least().gap) <= 1e-8
        jobs.advance()


def test_a_least_level_without_members_is_nothing() -> None:
    jobs = Jobs(0)
    problem = replace(jobs.by_job, count=np.zeros(14))
    pool = AllOptions(problem, problem.gain_first)
    solution = WarmLevelSum().best(pool, 1.0, jobs.numbers.astype(np.uint64))
    assert not solution.time.any()
    assert not solution.level.any()


def test_a_filling_that_takes_too_many_steps_is_solved_with_perturbed_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    perturbed = []
    solve_perturbed = linear._solve_perturbed

    def counted(highs: Any) -> Any:
        perturbed.append(highs)
        return solve_perturbed(highs)

    monkeypatch.setattr(linear, "STEP_LIMIT", 1)
    monkeypatch.setattr(linear, "_solve_perturbed", counted)
    jobs, level = Jobs(0), WarmFilling(perturbed=False)
    for _ in range(4):
        problem, profile = jobs.by_profile
        limited = level.fill(problem, FlatPath(problem.cap), keys=profile.astype(np.uint64))
        cold = fill_options(problem, FlatPath(problem.cap))
        np.testing.assert_allclose(limited.level, cold.level, atol=1e-8)
        assert abs(limited.certify_least().gap) <= 1e-8
        jobs.advance()
    assert perturbed
