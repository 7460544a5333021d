"""The programs behind tenants' rows: their edges, and that many rows agree with few."""

import numpy as np
import pytest

from fairlead.model.arrays import FloatArray
from fairlead.solve.linear import Columns, LinearProgram, solve_lp
from fairlead.solve.oef.dual_prices import equal_bound
from fairlead.solve.oef.envy_free import solve_envy_free
from fairlead.solve.oef.equal_levels import solve_equal
from fairlead.solve.recent import RecentSolutions

INF = float("inf")


def test_nobody_and_nothing() -> None:
    none = np.zeros((0, 2))
    assert solve_equal(none, np.zeros(0), np.ones(2)).amount.shape == (0, 2)
    assert solve_envy_free(none, np.zeros(0), np.ones(2)).certificate.gap == 0.0
    useless = np.array([[0.0, 1.0], [2.0, 0.0]])
    solution = solve_equal(useless, np.ones(2), np.array([0.0, 3.0]))
    np.testing.assert_array_equal(solution.amount, [[0, 3], [0, 0]])
    assert solution.least == 3.0
    free = solve_envy_free(useless, np.ones(2), np.array([0.0, 3.0]))
    np.testing.assert_allclose(free.amount, [[0, 3], [0, 0]])
    assert free.bound == pytest.approx(free.total) == pytest.approx(3.0)


def test_equal_rows_share_by_weight() -> None:
    gain = np.array([[1.0, 2.0], [1.0, 5.0], [1.0, 2.0]])
    weight = np.array([1.0, 1.0, 3.0])
    for amount in (
        solve_equal(gain, weight, np.ones(2)).amount,
        solve_envy_free(gain, weight, np.ones(2)).amount,
    ):
        np.testing.assert_allclose(amount[2], 3 * amount[0], rtol=1e-12)


@pytest.mark.parametrize("spread", [1.0, 0.05, 1e-4])
@pytest.mark.parametrize("width", [2, 3, 7])
def test_many_rows_have_the_level_of_one_great_program(width: int, spread: float) -> None:
    """The guessed prices only choose what the linear program looks at."""
    rng = np.random.default_rng(width)
    base = np.linspace(1.0, 4.0, width)
    gain = base * np.exp(spread * rng.normal(size=(150, width)))
    gain[rng.random(gain.shape) < 0.1] = 0.0
    gain[:, 0] = 1.0
    weight, capacity = rng.uniform(0.5, 2.0, 150), rng.integers(1, 40, width).astype(float)
    solution = solve_equal(gain, weight, capacity)
    matrix = np.zeros((width + 150, 1 + gain.size))
    matrix[:width, 1:] = np.tile(np.eye(width), 150)
    for i in range(150):
        matrix[width + i, 1 + i * width : 1 + (i + 1) * width] = gain[i]
        matrix[width + i, 0] = -weight[i]
    program = LinearProgram(
        np.append(-1.0, np.zeros(gain.size)),
        Columns.dense(matrix),
        np.append(np.full(width, -INF), np.zeros(150)),
        np.append(capacity, np.full(150, INF)),
        np.zeros(1 + gain.size),
        np.full(1 + gain.size, INF),
    )
    assert solution.least == pytest.approx(-solve_lp(program).objective, rel=1e-9)
    assert np.count_nonzero(solution.amount) <= 150 + width - 1
    assert abs(solution.certificate.gap) < 1e-9


def test_any_prices_bound_the_equal_level() -> None:
    rng = np.random.default_rng(3)
    for _ in range(100):
        gain, weight = rng.uniform(0.1, 3.0, (5, 3)), rng.uniform(0.2, 2.0, 5)
        capacity = rng.uniform(0.5, 4.0, 3)
        solution = solve_equal(gain, weight, capacity)
        bound = equal_bound(gain, weight, capacity, rng.exponential(size=3))
        assert bound >= solution.least * (1 - 1e-12)


def test_lazily_found_envy_is_all_envy() -> None:
    """Sixty distinct rows: far more pairs than the program begins with."""
    rng = np.random.default_rng(5)
    gain = np.column_stack([np.ones(60), rng.uniform(1.0, 6.0, (60, 3))])
    weight, capacity = rng.uniform(0.5, 2.0, 60), np.array([7.0, 20.0, 3.0, 11.0])
    solution = solve_envy_free(gain, weight, capacity)
    value = gain @ (solution.amount / weight[:, None]).T
    assert (value <= value.diagonal()[:, None] * (1 + 1e-8)).all()
    pair = [(i, o) for i in range(60) for o in range(60) if i != o]
    matrix = np.zeros((4 + len(pair), 240))
    matrix[:4] = np.tile(np.eye(4), 60)
    for row, (i, o) in enumerate(pair):
        matrix[4 + row, 4 * i : 4 * i + 4] = gain[i] / weight[i]
        matrix[4 + row, 4 * o : 4 * o + 4] = -gain[i] / weight[o]
    program = LinearProgram(
        -gain.ravel(),
        Columns.dense(matrix),
        np.append(np.full(4, -INF), np.zeros(len(pair))),
        np.append(capacity, np.full(len(pair), INF)),
        np.zeros(240),
        np.full(240, INF),
    )
    assert solution.total == pytest.approx(-solve_lp(program).objective, rel=1e-8)
    assert abs(solution.certificate.gap) < 1e-8


def test_an_input_that_comes_again_is_not_solved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.solve.recent._LIMIT", 64)
    solved: list[float] = []

    def solve(gain: FloatArray, weight: FloatArray, capacity: FloatArray) -> FloatArray:
        solved.append(float(weight[0]))
        return solve_equal(gain, weight, capacity).amount

    recent = RecentSolutions(solve)
    gain, capacity = np.array([[1.0, 2.0], [1.0, 3.0]]), np.array([2.0, 1.0])
    for weight in (1.0, 2.0, 1.0, *range(3, 66), 1.0, 2.0):
        shares = recent.solve(gain, np.full(2, weight), capacity)
        expected = solve_equal(gain, np.full(2, weight), capacity).amount
        np.testing.assert_array_equal(shares, expected)
    # Of the 65 inputs the 64 most recent are kept.
    assert solved == [1.0, 2.0, *range(3, 66), 2.0]
    assert len(recent.solve(gain[:1], np.ones(1), capacity)) == 1


def test_recent_solutions_of_large_inputs_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.solve.recent._BYTE_LIMIT", 8_000)
    solved: list[float] = []

    def solve(gain: FloatArray, weight: FloatArray, capacity: FloatArray) -> int:
        solved.append(float(gain[0, 0]))
        return len(weight) + len(capacity)

    recent = RecentSolutions(solve)
    for value in (1.0, 2.0, 1.0, 3.0, 4.0, 2.0):
        # 1,608 bytes of gains, weights and capacities, and as much for the solution
        recent.solve(np.full((100, 1), value), np.ones(100), np.ones(1))
    assert solved == [1.0, 2.0, 3.0, 4.0, 2.0]
    for value in (1.0, 1.0):  # more than all together may take: the last one is kept
        recent.solve(np.full((1000, 1), value), np.ones(1000), np.ones(1))
    assert solved == [1.0, 2.0, 3.0, 4.0, 2.0, 1.0]
