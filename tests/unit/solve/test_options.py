"""The program over options: water-filling, totals, ratios, extra rows and columns on demand."""

from typing import Any

import numpy as np
import pytest

from fairlead.model.errors import SolveError
from fairlead.solve.linear import Columns
from fairlead.solve.options import program as options_program
from fairlead.solve.options.filling import FlatPath, fill_options
from fairlead.solve.options.objectives import best_ratio, best_ratio_above, best_sum
from fairlead.solve.options.problem import NO_PARTNER, ExtraRows, OptionProblem
from fairlead.solve.options.solution import OptionSolution


def problem(
    options: list[tuple[int, float, int, int, float, float]],
    count: list[float],
    capacity: list[float],
    extra: ExtraRows | None = None,
) -> OptionProblem:
    """Options as (resource, size, first, second, gain of the first, gain of the second)."""
    resource, size, first, second, own, other = zip(*options, strict=True)
    return OptionProblem(
        count=np.array(count, dtype=float),
        capacity=np.array(capacity, dtype=float),
        resource=np.array(resource, dtype=np.int64),
        size=np.array(size, dtype=float),
        first=np.array(first, dtype=np.int64),
        second=np.array(second, dtype=np.int64),
        gain_first=np.array(own, dtype=float),
        gain_second=np.array(other, dtype=float),
        tie=np.linspace(0.0, 0.9, len(options)),
        extra=extra,
    )


def fill(options_problem: OptionProblem) -> OptionSolution:
    return fill_options(options_problem, FlatPath(options_problem.cap))


def test_two_alike_on_one_device_are_packed_when_that_pays() -> None:
    alone, packed = (0, 1, 0, NO_PARTNER, 1.0, 0.0), (0, 1, 0, 0, 0.8, 0.8)
    options_problem = problem([alone, packed], [2], [1])
    solution = fill(options_problem)
    np.testing.assert_allclose(solution.time, [0.0, 1.0], atol=1e-9)
    np.testing.assert_allclose(options_problem.level(solution.time), [0.8])
    proof = solution.certify_least()
    assert proof.bound == pytest.approx(0.8)
    assert proof.gap == pytest.approx(0.0, abs=1e-9)


def test_unequal_numbers_of_partners_share_the_packed_time_evenly() -> None:
    options_problem = problem(
        [
            (0, 1, 0, NO_PARTNER, 1.0, 0.0),
            (0, 1, 1, NO_PARTNER, 1.0, 0.0),
            (0, 1, 0, 1, 0.9, 0.9),
        ],
        [3, 1],
        [2],
    )
    solution = fill(options_problem)
    # With the single one paired for y, it has 0.9 y and the three 2 - 0.1 y together.
    np.testing.assert_allclose(solution.time, [2 - 2 / 2.8, 0.0, 2 / 2.8], atol=1e-9)
    np.testing.assert_allclose(options_problem.level(solution.time), [9 / 14, 9 / 14], rtol=1e-9)


def test_caps_do_not_hold_the_others_back() -> None:
    gains = [0.5, 1.0, 2.0, 4.0]
    options_problem = problem(
        [(0, 1, k, NO_PARTNER, g, 0.0) for k, g in enumerate(gains)], [1] * 4, [4]
    )
    solution = fill(options_problem)
    np.testing.assert_allclose(options_problem.level(solution.time), gains)


def test_the_least_device_time_is_taken_among_equal_levels() -> None:
    options_problem = problem(
        [(0, 2, 0, NO_PARTNER, 1.0, 0.0), (1, 1, 0, NO_PARTNER, 1.0, 0.0)], [1], [2, 2]
    )
    np.testing.assert_allclose(fill(options_problem).time, [0.0, 1.0], atol=1e-12)


def test_an_extra_row_limits_and_guarantees() -> None:
    options: list[Any] = [(0, 1, 0, NO_PARTNER, 1.0, 0.0), (0, 1, 1, NO_PARTNER, 1.0, 0.0)]
    limit = ExtraRows(
        Columns(np.array([0, 1, 1]), np.array([0]), np.ones(1)),
        np.array([-np.inf]),
        np.array([0.25]),
    )
    options_problem = problem(options, [1, 1], [1], limit)
    solution = fill(options_problem)
    np.testing.assert_allclose(options_problem.level(solution.time), [0.25, 0.75], rtol=1e-9)
    proof = solution.certify_least()
    assert proof.bound == pytest.approx(0.25, rel=1e-9)
    guarantee = ExtraRows(limit.matrix, np.array([0.8]), np.array([np.inf]))
    options_problem = problem(options, [1, 1], [1], guarantee)
    np.testing.assert_allclose(
        options_problem.level(fill(options_problem).time), [0.8, 0.2], rtol=1e-9
    )
    found_sum = best_sum(options_problem, np.array([1.0, 2.0]))
    assert found_sum.reached == pytest.approx(0.8 + 0.4)
    assert found_sum.proof is not None
    assert found_sum.proof.gap == pytest.approx(0.0, abs=1e-9)


def _many(seed: int) -> OptionProblem:
    rng = np.random.default_rng(seed)
    classes, width = 12, 2
    alone = [
        (j, 1.0, k, NO_PARTNER, float(rng.uniform(1, 3)), 0.0)
        for k in range(classes)
        for j in range(width)
    ]
    pairs = [
        (j, 1.0, a, b, float(rng.uniform(0.3, 1.5)), float(rng.uniform(0.3, 1.5)))
        for a in range(classes)
        for b in range(a + 1, classes)
        for j in range(width)
    ]
    count = rng.integers(1, 4, classes).tolist()
    return problem(alone + pairs, count, rng.integers(2, 12, width).tolist())


@pytest.mark.parametrize("seed", range(20))
def test_columns_added_on_demand_change_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    options_problem = _many(seed)
    whole = fill(options_problem)
    monkeypatch.setattr(options_program, "_ALL_COLUMNS", 0)
    monkeypatch.setattr(options_program, "_ADDED", 3)
    on_demand = fill(options_problem)
    np.testing.assert_allclose(on_demand.level, whole.level, rtol=1e-9)
    np.testing.assert_allclose(on_demand.time, whole.time, atol=1e-8)


def test_only_options_with_the_best_ratio_run() -> None:
    options_problem = problem(
        [
            (0, 1, 0, NO_PARTNER, 1.0, 0.0),
            (0, 1, 1, NO_PARTNER, 1.0, 0.0),
            (1, 1, 1, NO_PARTNER, 1.0, 0.0),
        ],
        [1, 1],
        [1, 1],
    )
    solution = best_ratio(options_problem, np.array([4.0, 8.0, 2.0]), np.array([2.0, 4.0, 2.0]))
    assert solution.reached == 2.0
    # Both options of the first resource have that ratio; the second one makes more.
    np.testing.assert_allclose(solution.time, [0.0, 1.0, 0.0], atol=1e-12)


def test_levels_that_cannot_all_be_reached_miss_the_least_in_total() -> None:
    options_problem = problem(
        [(0, 1, 0, NO_PARTNER, 1.0, 0.0), (0, 1, 1, NO_PARTNER, 2.0, 0.0)], [1, 1], [1]
    )
    level = np.array([0.5, 2.0])
    solution = best_ratio_above(options_problem, np.array([1.0, 2.0]), np.ones(2), level)
    # A unit of time brings the first 2 of its level, the second 1: the first is served in full.
    np.testing.assert_allclose(solution.time, [0.5, 0.5], rtol=1e-9)


def test_malformed_problems_are_refused() -> None:
    with pytest.raises(SolveError, match="fewer"):
        problem([(0, 1, 0, 0, 1.0, 1.0)], [1], [1])
    with pytest.raises(SolveError, match="size"):
        problem([(0, 0, 0, NO_PARTNER, 1.0, 0.0)], [1], [1])
    with pytest.raises(SolveError, match="gain_first"):
        problem([(0, 1, 0, NO_PARTNER, np.nan, 0.0)], [1], [1])


def test_levels_stand_where_the_tie_rule_is_not_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    options = [(0, 1.0, 0, NO_PARTNER, 1.0, 0.0), (0, 1.0, 1, NO_PARTNER, 0.5, 0.0)]
    options_problem = problem([*options, (0, 1.0, 0, 1, 0.9, 0.4)], [1, 1], [1])
    usual = fill(options_problem)

    def unsolved(*_: object) -> None:
        raise SolveError("options were not solved", status="unknown", n_classes=2)

    monkeypatch.setattr(options_program.OptionProgram, "minimise", unsolved)
    solution = fill(options_problem)
    np.testing.assert_allclose(solution.level, usual.level, atol=1e-9)
    reached = options_problem.level(solution.time)
    np.testing.assert_allclose(reached, usual.level, atol=1e-9)
