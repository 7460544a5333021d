"""The compiled choice of units is that of the Python code."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.test_compiled import Pure, needs_compiled

from fairlead.compiled import compiled
from fairlead.mechanisms._rounds import unit_selection
from fairlead.mechanisms._rounds.candidates import CandidateEntries
from fairlead.mechanisms._rounds.unit_selection import UnitSelection

# Few different numbers, so that weights tie.
weights = st.sampled_from([0.25, 0.5, 1.0, 2.0]) | st.floats(-4.0, 4.0)


@st.composite
def _rounds(draw: st.DrawFn) -> tuple[Any, ...]:
    jobs, columns = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    pair = st.tuples(st.integers(0, jobs - 1), st.integers(0, jobs - 1))
    pairs = draw(st.lists(pair.filter(lambda p: p[0] < p[1]), max_size=8)) if jobs > 1 else []
    members = np.array([(job, -1) for job in range(jobs)] + pairs, dtype=np.int64)
    place = st.tuples(st.integers(0, len(members) - 1), st.integers(0, columns - 1))
    row, column = np.array(draw(st.lists(place, min_size=1, unique=True))).T
    weight = np.array([draw(weights) for _ in row])
    free = [draw(st.integers(0, 3)) for _ in range(columns)]
    entries = CandidateEntries(np.ascontiguousarray(row), np.ascontiguousarray(column), weight)
    return members, np.ones(len(row), np.int64), entries, free, jobs


def _choice(case: tuple[Any, ...]) -> tuple[dict[int, int], list[int], list[int]]:
    members, gang, entries, free, jobs = case
    choice = UnitSelection(members, gang, entries, list(free), jobs)
    choice.assign()
    return choice.wanted, choice.unit_of, choice.free


@needs_compiled
@given(_rounds())
def test_the_compiled_choice_of_units_is_the_same(case: tuple[Any, ...]) -> None:
    with Pure(unit_selection):
        expected = _choice(case)
    assert _choice(case) == expected


UNIT, WEIGHT = np.array([0, 1]), np.ones(2)
MEMBERS, NOBODY = np.array([[0, -1], [1, -1]]), np.full(2, -1)


@needs_compiled
@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (UNIT, UNIT, WEIGHT, MEMBERS, [1], NOBODY.copy(), NOBODY.copy()),
        (UNIT, UNIT, WEIGHT, MEMBERS, (1, 1), NOBODY.copy(), NOBODY.copy()),
        (UNIT, UNIT, WEIGHT, MEMBERS, ["no", 1], NOBODY.copy(), NOBODY.copy()),
        (UNIT, UNIT, WEIGHT[:1], MEMBERS, [1, 1], NOBODY.copy(), NOBODY.copy()),
        (UNIT, UNIT, WEIGHT, MEMBERS[:, 0].copy()[:1], [1, 1], NOBODY.copy(), NOBODY.copy()),
        (UNIT, UNIT, WEIGHT, MEMBERS, [1, 1], NOBODY[:1].copy(), NOBODY.copy()),
        (UNIT, UNIT, WEIGHT, MEMBERS, [1, 1], NOBODY.copy(), NOBODY[:1].copy()),
        (UNIT, UNIT, WEIGHT, MEMBERS, [1, 1], UNIT.copy(), NOBODY.copy()),
    ],
)
def test_units_that_do_not_fit_are_rejected(arguments: tuple[Any, ...]) -> None:
    assert compiled is not None
    with pytest.raises((TypeError, ValueError)):
        compiled.assign_units(*arguments)
