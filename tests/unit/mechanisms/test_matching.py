"""Matching rows to groups of slots at the least total cost."""

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairlead.mechanisms._queues.matching import match
from fairlead.model.arrays import FloatArray, IntArray

Problem = tuple[FloatArray, list[FloatArray], IntArray]


def cheapest(cost: FloatArray, surcharge: list[FloatArray]) -> float:
    """Return the least cost of all ways to give every row a slot, by trying them all."""
    slots = [(g, extra) for g, slots in enumerate(surcharge) for extra in slots.tolist()]
    ways = permutations(slots, len(cost))
    totals = (sum(cost[i, g] + extra for i, (g, extra) in enumerate(way)) for way in ways)
    return min(totals, default=np.inf)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    rows, groups = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    cell = st.one_of(st.integers(0, 9).map(float), st.just(np.inf))
    cost = [draw(st.lists(cell, min_size=groups, max_size=groups)) for _ in range(rows)]
    extra = st.lists(st.integers(0, 9), max_size=2)
    surcharge = [np.array(sorted(draw(extra)), dtype=np.float64) for _ in range(groups)]
    return np.array(cost), surcharge, np.array(draw(st.permutations(range(rows))))


@given(problems())
def test_matching_costs_no_more_than_any_other(problem: Problem) -> None:
    cost, surcharge, order = problem
    best = cheapest(cost, surcharge)
    group = match(cost, surcharge, order)
    if best == np.inf:
        assert group is None
        return
    assert group is not None
    used = np.bincount(group, minlength=len(surcharge)).tolist()
    extra = sum(slots[:n].sum() for slots, n in zip(surcharge, used, strict=True))
    assert all(n <= len(slots) for slots, n in zip(surcharge, used, strict=True))
    assert cost[np.arange(len(cost)), group].sum() + extra == best


def test_row_that_fits_only_one_group_displaces_one_that_fits_two() -> None:
    cost = np.array([[1.0, 2.0], [1.0, np.inf]])
    group = match(cost, [np.zeros(1), np.zeros(1)], np.array([0, 1]))
    assert group is not None
    assert group.tolist() == [1, 0]


def test_dearer_slots_of_a_group_are_left_for_cheaper_groups() -> None:
    group = match(
        np.array([[1.0, 4.0]] * 3), [np.array([0.0, 2.0, 9.0]), np.zeros(3)], np.arange(3)
    )
    assert group is not None
    assert sorted(group.tolist()) == [0, 0, 1]
