"""The thin layer over HiGHS, and the merging of members."""

from typing import Any

import highspy
import numpy as np
import pytest

from fairlead.model.errors import SolveError
from fairlead.solve import classes as classes_module
from fairlead.solve import linear
from fairlead.solve.classes import merge
from fairlead.solve.linear import (
    PRIMAL,
    Columns,
    LinearProgram,
    new_highs,
    rerun_highs,
    solve_lp,
    without_perturbation,
)

INF = float("inf")


def program(cost: list[float], matrix: list[list[float]], upper: list[float]) -> LinearProgram:
    rows, columns = len(matrix), len(cost)
    return LinearProgram(
        np.array(cost),
        Columns.dense(np.array(matrix)),
        np.full(rows, -INF),
        np.array(upper),
        np.zeros(columns),
        np.full(columns, INF),
    )


def test_a_program_returns_its_vertex_and_duals_that_explain_the_cost() -> None:
    lp = program([-3.0, -2.0], [[1.0, 1.0], [1.0, 0.0]], [4.0, 3.0])
    solution = solve_lp(lp)
    np.testing.assert_allclose(solution.value, [3.0, 1.0])
    assert solution.objective == pytest.approx(-11.0)
    np.testing.assert_allclose(solution.row_dual, [-2.0, -1.0])
    np.testing.assert_allclose(solution.column_dual, 0.0, atol=1e-12)


def test_an_infeasible_program_names_its_status() -> None:
    lp = program([1.0], [[1.0]], [-1.0])
    with pytest.raises(SolveError) as caught:
        solve_lp(lp)
    assert "infeasible" in caught.value.status


def test_an_unbounded_program_names_its_status() -> None:
    with pytest.raises(SolveError) as caught:
        solve_lp(program([-1.0], [[0.0]], [1.0]))
    assert "unbounded" in caught.value.status


def test_dense_columns_keep_every_entry() -> None:
    columns = Columns.dense(np.array([[0.0, 2.0], [3.0, 0.0], [0.0, 5.0]]))
    assert columns.start.tolist() == [0, 1, 3]
    assert columns.row.tolist() == [1, 0, 2]
    assert columns.value.tolist() == [3.0, 2.0, 5.0]


def test_members_alike_in_every_column_form_a_class() -> None:
    gain = np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 2.0], [-0.0, 2.0], [0.0, 2.0]])
    size = np.array([1.0, 1.0, 1.0, 4.0, 4.0])
    solution = merge(gain, size)
    assert solution.index_of_member.tolist() == [0, 1, 0, 2, 2]
    assert solution.representative.tolist() == [0, 1, 3]
    assert solution.count.tolist() == [2, 1, 2]
    assert merge(np.zeros((0, 2))).count.tolist() == []


def test_colliding_hashes_do_not_merge_different_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes_module, "row_hash", lambda rows: np.zeros(len(rows), np.uint64))
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, (200, 3)).astype(float)
    solution = merge(rows)
    np.testing.assert_array_equal(rows[solution.representative][solution.index_of_member], rows)
    assert len(solution.count) == len(np.unique(rows, axis=0))
    assert (np.diff(solution.representative) > 0).all()


def test_classes_are_the_same_for_a_hundred_thousand_members_in_any_order() -> None:
    rng = np.random.default_rng(1)
    rows_of_class = rng.random((104, 4))
    member = rng.integers(0, 104, 100_000)
    solution = merge(rows_of_class[member])
    assert len(solution.count) == 104
    assert solution.count.sum() == 100_000
    np.testing.assert_array_equal(
        rows_of_class[member][solution.representative][solution.index_of_member],
        rows_of_class[member],
    )


def test_what_one_simplex_method_leaves_undecided_is_left_to_the_other() -> None:
    highs = new_highs(presolve=False)
    highs.setOptionValue("simplex_strategy", PRIMAL)
    highs.addCol(-1.0, 0.0, 3.0, 0, np.zeros(0, np.int32), np.zeros(0))
    assert linear._solve_otherwise(highs) == highspy.HighsModelStatus.kOptimal
    assert highs.getSolution().col_value == [3.0]
    assert highs.getOptionValue("simplex_strategy")[1] == PRIMAL


@pytest.mark.parametrize("runs", range(5))
def test_a_limit_of_steps_reached_in_any_run_is_lifted(
    runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many runs leave the program undecided, and the next one reaches the limit."""
    undecided = highspy.HighsModelStatus.kUnknown
    statuses = [undecided] * runs + [highspy.HighsModelStatus.kIterationLimit]
    lifted = []
    solve_perturbed = linear._solve_perturbed

    def counted(highs: Any) -> Any:
        lifted.append(highs)
        return solve_perturbed(highs)

    highs = new_highs(presolve=False)
    status = highs.getModelStatus
    monkeypatch.setattr(linear, "_solve_perturbed", counted)
    monkeypatch.setattr(highs, "getModelStatus", lambda: statuses.pop(0) if statuses else status())
    without_perturbation(highs)
    highs.addCol(-1.0, 0.0, 3.0, 0, np.zeros(0, np.int32), np.zeros(0))
    assert rerun_highs(highs) == highspy.HighsModelStatus.kOptimal
    assert len(lifted) == 1
    assert highs.getSolution().col_value == [3.0]
    assert highs.getOptionValue("simplex_iteration_limit")[1] == linear.STEP_LIMIT
