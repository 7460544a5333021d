"""With many distinct classes the answer is the same, and proved, whatever method found it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.solve import solver as solver_module
from fairlead.solve.max_min.problem import MaxMinProblem, MaxMinSolution, price_bound
from fairlead.solve.solver import solve_max_min


def many(seed: int, classes: int, width: int, load: float, class_of: str) -> MaxMinProblem:
    rng = np.random.default_rng(seed)
    gain = rng.uniform(0.2, 3.0, (classes, width))
    if class_of == "holes":
        gain[rng.random(gain.shape) < 0.3] = 0.0
    if class_of == "ties":
        gain = rng.integers(0, 25, gain.shape) / 8
    if class_of == "twins" and width > 1:
        gain[:, 1] = gain[:, 0]
    size = rng.choice([1.0, 1.0, 2.0, 4.0, 8.0], classes)
    count = rng.integers(0, 5, classes).astype(float)
    devices = (count * size).sum() / load
    capacity = np.ceil(rng.dirichlet(np.full(width, 2.0)) * devices)
    if rng.random() < 0.2:
        capacity[rng.integers(width)] = 0.0
    return MaxMinProblem(gain, size, count, capacity)


def by_simplex(problem: MaxMinProblem, monkeypatch: pytest.MonkeyPatch) -> MaxMinSolution:
    with monkeypatch.context() as patch:
        patch.setattr(solver_module, "SIMPLEX_CLASSES", 10**9)
        return solve_max_min(problem)


def by_sifting(problem: MaxMinProblem) -> MaxMinSolution:
    return solver_module.solve_many(problem, few=15)


def assert_feasible(problem: MaxMinProblem, answer: MaxMinSolution) -> None:
    assert (answer.share >= 0).all()
    assert (answer.share.sum(axis=1) <= 1 + 1e-9).all()
    used = ((problem.count * problem.size)[:, None] * answer.share).sum(axis=0)
    assert (used <= problem.capacity * (1 + 1e-9)).all()


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    classes=st.integers(30, 300),
    width=st.integers(1, 5),
    load=st.sampled_from([0.3, 0.5, 0.7, 1.0, 1.5, 3.0, 8.0]),
    shape=st.sampled_from(["plain", "holes", "ties", "twins"]),
)
def test_sifting_finds_the_levels_of_simplex(
    seed: int, classes: int, width: int, load: float, shape: str
) -> None:
    problem = many(seed, classes, width, load, shape)
    answer = by_sifting(problem)
    with pytest.MonkeyPatch.context() as monkeypatch:
        exact = by_simplex(problem, monkeypatch)
    assert_feasible(problem, answer)
    np.testing.assert_allclose(answer.level, exact.level, atol=1e-9)
    if shape in ("plain", "holes"):  # no ties: the shares are unique
        np.testing.assert_allclose(answer.share, exact.share, atol=1e-5)
    proof = answer.certificate
    assert proof.bound == price_bound(problem, proof.prices)
    assert -1e-9 <= proof.gap <= 1e-8


@pytest.mark.parametrize("load", [2.0, 1.0, 0.5])
@pytest.mark.parametrize(("classes", "width"), [(400, 3), (1500, 3), (300, 8)])
def test_levels_agree_at_every_load(
    classes: int, width: int, load: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(classes + width)
    gain = rng.uniform(0.2, 2.0, (classes, width)) * np.linspace(1, 3, width)
    gain /= gain.mean(axis=1, keepdims=True)
    size = rng.choice([1.0, 1.0, 1.0, 2.0, 4.0], classes)
    capacity = np.full(width, size.sum() / load / width)
    problem = MaxMinProblem(gain, size, np.ones(classes), capacity)
    answer = solve_max_min(problem)
    assert_feasible(problem, answer)
    assert answer.certificate.gap <= 1e-9
    assert abs(answer.certify_stage(0).gap) <= 1e-9
    if classes <= 400:
        exact = by_simplex(problem, monkeypatch)
        np.testing.assert_allclose(answer.level, exact.level, atol=1e-9)
        np.testing.assert_allclose(answer.share, exact.share, atol=1e-7)


def test_members_of_few_kinds_are_merged_before_anything_else() -> None:
    rng = np.random.default_rng(3)
    gain_of_class = rng.uniform(0.3, 2.0, (20, 3))
    class_of = rng.integers(0, 20, 5000)
    ones = np.ones(5000)
    capacity = np.full(3, 900.0)
    answer = solve_max_min(MaxMinProblem(gain_of_class[class_of], ones, ones, capacity))
    count = np.bincount(class_of, minlength=20).astype(float)
    merged = solve_max_min(MaxMinProblem(gain_of_class, np.ones(20), count, capacity))
    np.testing.assert_allclose(answer.level, merged.level[class_of], atol=1e-9)
    np.testing.assert_allclose(answer.share, merged.share[class_of], atol=1e-7)
