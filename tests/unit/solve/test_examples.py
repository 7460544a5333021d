"""Max-min on worked examples and at the edges of what it accepts."""

import numpy as np
import pytest

from fairlead.model.errors import SolveError
from fairlead.solve.max_min.problem import MaxMinProblem, price_bound
from fairlead.solve.solver import MaxMinSolver, solve_max_min


def problem(
    gain: list[list[float]], capacity: list[float], *, count: list[float] | None = None
) -> MaxMinProblem:
    ones = np.ones(len(gain))
    return MaxMinProblem(
        np.array(gain), ones, ones if count is None else np.array(count), np.array(capacity)
    )


def test_gavel_section_4_1_has_its_unique_shares() -> None:
    speed = np.array([[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]])
    capacity = np.ones(2)
    # Normalised by the speed that an equal share of all devices would give.
    gain = speed / (speed * capacity).sum(axis=1, keepdims=True) * capacity.sum()
    answer = solve_max_min(MaxMinProblem(gain, np.ones(3), np.ones(3), capacity))
    expected = np.array([[5.0, 0.0], [5.0, 1.0], [1.0, 10.0]]) / 11
    np.testing.assert_allclose(answer.share, expected, atol=1e-12)
    np.testing.assert_allclose(answer.level, 8 / 11, atol=1e-12)


@pytest.mark.parametrize(
    ("devices", "first", "last"),
    [(4.0, [1, 1 / 3, 1 / 3, 1 / 3], [1, 1, 1, 1]), (3.0, None, [1, 2 / 3, 2 / 3, 2 / 3])],
)
def test_gavel_section_4_3_fills_the_weighted_job_first(
    devices: float, first: list[float] | None, last: list[float]
) -> None:
    weight = np.array([3.0, 1.0, 1.0, 1.0])
    answer = solve_max_min(problem([[1 / w] for w in weight], [devices]))
    # Speeds are level × weight, at the first level and in the end.
    if first is not None:
        np.testing.assert_allclose(answer.filled(answer.level.min()) * weight, first, atol=1e-12)
    np.testing.assert_allclose(answer.level * weight, last, atol=1e-12)


def test_a_class_that_runs_nowhere_does_not_hold_the_others_at_zero() -> None:
    answer = solve_max_min(problem([[0.0, 0.0], [1.0, 2.0], [3.0, 0.0]], [0.0, 1.0]))
    assert answer.level.tolist() == [0.0, 2.0, 0.0]
    assert answer.certificate.bound == 2.0


def test_members_beyond_a_bottleneck_rise_on() -> None:
    # Two classes crowd the first resource; the third has the second to itself.
    answer = solve_max_min(problem([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]], [1.0, 4.0]))
    np.testing.assert_allclose(answer.level, [2 / 3, 2 / 3, 1.0])
    assert [stage.frozen.tolist() for stage in answer.stages] == [[0, 1], [2]]


def test_gangs_count_by_the_devices_they_hold() -> None:
    gang = MaxMinProblem(np.ones((2, 1)), np.array([1.0, 4.0]), np.array([2.0, 1.0]), np.ones(1))
    np.testing.assert_allclose(solve_max_min(gang).level, 1 / 6)


def test_equal_classes_get_equal_shares_under_different_keys() -> None:
    twins = problem([[1.0, 1.0], [1.0, 1.0], [2.0, 1.0]], [1.0, 1.0])
    share = MaxMinSolver().solve(twins, [7, 9, 8]).share
    assert share[0].tolist() == share[1].tolist()


def test_ties_go_to_the_shares_that_hold_least_device_time() -> None:
    # Level 1 takes one device of the first resource or two of the second.
    answer = solve_max_min(problem([[1.0, 0.5], [0.0, 0.5]], [1.0, 2.0]))
    np.testing.assert_allclose(answer.share, [[1.0, 0.0], [0.0, 1.0]], atol=1e-9)


def test_nobody_and_nothing_have_answers() -> None:
    assert solve_max_min(problem([[1.0]], [1.0], count=[0.0])).level.tolist() == [0.0]
    assert solve_max_min(problem([[1.0]], [0.0])).level.tolist() == [0.0]
    none = MaxMinProblem(np.zeros((0, 2)), np.zeros(0), np.zeros(0), np.ones(2))
    assert solve_max_min(none).level.shape == (0,)


def test_a_bound_needs_no_trust_in_the_solver() -> None:
    # One member, half a device: no prices exclude level 1 below 0.5.
    half = problem([[1.0]], [0.5])
    assert price_bound(half, np.array([3.0])) == pytest.approx(0.5)
    assert price_bound(half, np.array([0.0])) == 1.0


def test_a_changed_gain_under_a_known_key_is_noticed() -> None:
    solver = MaxMinSolver()
    solver.solve(problem([[1.0], [1.0]], [1.0]), [1, 2])
    again = solver.solve(problem([[1.0], [3.0]], [1.0]), [1, 2])
    np.testing.assert_allclose(again.level, 0.75)


@pytest.mark.parametrize(
    ("gain", "size", "count", "capacity"),
    [
        ([[1.0]], [1.0], [1.0], [1.0, 1.0]),
        ([[-1.0]], [1.0], [1.0], [1.0]),
        ([[float("nan")]], [1.0], [1.0], [1.0]),
        ([[1.0]], [0.0], [1.0], [1.0]),
        ([[1.0]], [1.0], [-1.0], [1.0]),
        ([[1.0]], [1.0], [1.0], [float("inf")]),
    ],
)
def test_malformed_problems_are_refused(
    gain: list[list[float]], size: list[float], count: list[float], capacity: list[float]
) -> None:
    with pytest.raises(SolveError, match="malformed"):
        solve_max_min(
            MaxMinProblem(np.array(gain), np.array(size), np.array(count), np.array(capacity))
        )
