"""Very many distinct classes whose demand just balances the capacity."""

import numpy as np
import pytest

from fairlead.model.arrays import FloatArray
from fairlead.solve.max_min.problem import MaxMinProblem
from fairlead.solve.max_min_many.pricing import Decision, StageClasses
from fairlead.solve.solver import solve_max_min


def balanced(classes: int, seed: int) -> MaxMinProblem:
    """Return classes on three resources; the cheapest one is almost worth nothing."""
    rng = np.random.default_rng(seed)
    gain = rng.uniform(0.2, 2.0, (classes, 3)) * np.linspace(1.0, 3.0, 3)
    gain /= gain.mean(axis=1, keepdims=True)
    size = rng.choice([1.0, 1.0, 1.0, 2.0, 4.0], classes)
    return MaxMinProblem(gain, size, np.ones(classes), np.full(3, size.sum() / 3))


@pytest.mark.parametrize("seed", [2, 7])
def test_few_classes_are_marginal_at_refined_prices(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    passes = []
    decide = StageClasses.decide

    def counted(classes: StageClasses, t: float, prices: FloatArray) -> Decision:
        passes.append(len(classes.size))
        return decide(classes, t, prices)

    monkeypatch.setattr(StageClasses, "decide", counted)
    solution = solve_max_min(balanced(60_000, seed))
    assert passes.count(60_000) <= 5
    assert solution.certificate.gap < 1e-9
