"""Single devices of greatest value: the optimum of the program, where it is the only one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nst

from fairlead.compiled import compiled
from fairlead.model.arrays import FloatArray
from fairlead.solve import single_devices
from fairlead.solve.options.objectives import best_sum
from fairlead.solve.options.problem import NO_PARTNER, OptionProblem
from fairlead.solve.single_devices import best_single_devices

values = st.floats(0.1, 9.0) | st.sampled_from([0.0, 1.0, 2.0])


@st.composite
def cases(draw: st.DrawFn) -> tuple[FloatArray, FloatArray]:
    rows, width = draw(st.integers(0, 12)), draw(st.integers(1, 4))
    value = draw(nst.arrays(np.float64, (rows, width), elements=values))
    capacity = draw(st.lists(st.integers(0, 4), min_size=width, max_size=width))
    return value, np.array(capacity, dtype=np.float64)


def share_by_program(value: FloatArray, capacity: FloatArray) -> FloatArray:
    row, column = value.nonzero()
    gain: FloatArray = value[row, column]
    problem = OptionProblem(
        count=np.ones(len(value)),
        capacity=capacity,
        resource=column,
        size=np.ones(len(row)),
        first=row,
        second=np.full(len(row), NO_PARTNER),
        gain_first=gain,
        gain_second=np.zeros(len(row)),
        tie=np.linspace(0.0, 1.0, len(row)),
    )
    share = np.zeros(value.shape)
    share[row, column] = best_sum(problem, gain).time
    return share


@given(cases())
def test_the_choice_is_the_optimum_of_the_program(case: Any) -> None:
    value, capacity = case
    chosen = best_single_devices(value, capacity)
    share = share_by_program(value, capacity)
    if chosen is None:
        return
    matched = np.zeros(value.shape)
    runs = (chosen >= 0).nonzero()[0]
    matched[runs, chosen[runs]] = 1.0
    assert matched.tolist() == share.tolist()


def test_a_row_makes_room_by_moving_to_its_second_best_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value, capacity = np.array([[5.0, 4.0], [3.0, 0.0]]), np.array([1.0, 1.0])
    if compiled is not None:
        chosen = best_single_devices(value, capacity)
        assert chosen is not None
        assert chosen.tolist() == [1, 0]
    monkeypatch.setattr(single_devices, "compiled", None)
    assert best_single_devices(value, capacity) is None  # left to the program
    assert share_by_program(value, capacity).tolist() == [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("value", "capacity"),
    [
        ([[1.0], [1.0]], [1.0]),
        ([[2.0, 1.0], [3.0, 2.0]], [1.0, 1.0]),
        ([[2.0, 2.0]], [1.0, 1.0]),
        ([[2.0]], [0.5]),
    ],
)
def test_ties_and_parts_of_devices_are_left_to_the_program(
    value: list[list[float]], capacity: list[float]
) -> None:
    assert best_single_devices(np.array(value), np.array(capacity)) is None
