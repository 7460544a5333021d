"""The gangs of a round are those of greatest weight that fit, counted for every device."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.mechanisms._rounds.candidates import CandidateEntries
from fairlead.mechanisms._rounds.knapsack import has_few_states
from fairlead.mechanisms._rounds.selection import RoundSelection

rows = st.lists(
    st.tuples(
        st.sampled_from([1, 1, 2, 4]),
        st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.75, 3.0]), min_size=2, max_size=2),
    ),
    min_size=1,
    max_size=6,
)


def _chosen(gang: list[int], weight: np.ndarray, free: list[int]) -> RoundSelection:
    row, column = weight.nonzero()
    choice = RoundSelection.of(np.array(gang), list(free))
    choice.assign_gangs(CandidateEntries(row, column, weight[row, column]))
    return choice


def _total(gang: list[int], weight: np.ndarray, columns: list[int]) -> float:
    return sum(gang[r] * float(weight[r, c]) for r, c in enumerate(columns) if c >= 0)


@given(rows, st.lists(st.integers(0, 5), min_size=2, max_size=2))
def test_the_gangs_chosen_have_the_greatest_total_weight(
    jobs: list[tuple[int, list[float]]], free: list[int]
) -> None:
    gang, weight = [size for size, _ in jobs], np.array([row for _, row in jobs])
    choice = _chosen(gang, weight, free)
    columns = choice.wanted.tolist()
    used = [sum(gang[r] for r, c in enumerate(columns) if c == j) for j in range(2)]
    assert [u + f for u, f in zip(used, choice.free, strict=True)] == free
    assert all(weight[r, c] > 0 for r, c in enumerate(columns) if c >= 0)
    best = max(
        _total(gang, weight, list(other))
        for other in product((-1, 0, 1), repeat=len(gang))
        if all(sum(gang[r] for r, c in enumerate(other) if c == j) <= free[j] for j in range(2))
    )
    assert _total(gang, weight, columns) == pytest.approx(best)


def test_the_dynamic_program_is_for_small_clusters() -> None:
    assert has_few_states([12, 12, 12])
    assert has_few_states([8, 16, 24])
    assert not has_few_states([16, 16, 16])


def test_rows_that_run_already_or_must_not_are_left_alone() -> None:
    choice = RoundSelection(np.array([2, 1, 1]), [2], np.array([-2, -1, -1]))
    entries = CandidateEntries(np.arange(3), np.zeros(3, dtype=np.int64), np.array([9.0, 1, 2]))
    choice.assign_gangs(entries)
    assert choice.wanted.tolist() == [-2, 0, 0]
