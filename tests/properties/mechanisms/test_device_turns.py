"""The compiled turns on devices are those of the Python code."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.test_compiled import Pure, needs_compiled

from fairlead.compiled import compiled
from fairlead.mechanisms._tickets import device_turns, pass_ranks
from fairlead.mechanisms._tickets.device_turns import DeviceTurns

passes = st.lists(
    st.sampled_from([0.5, 1.0, 1.5, 0.1 + 0.2, 2.5e-9, 1234567.0000000005, 1e12])
    | st.floats(-1e5, 1e5),
    min_size=1,
)


@needs_compiled
@given(passes, st.integers(0, 12))
def test_the_compiled_ranks_of_passes_are_the_same(values: list[float], decimals: int) -> None:
    with Pure(pass_ranks):
        expected = pass_ranks.pass_ranks(np.array(values), decimals)
    assert pass_ranks.pass_ranks(np.array(values), decimals).tolist() == expected.tolist()


@st.composite
def _rounds(draw: st.DrawFn) -> tuple[Any, ...]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    of_device = np.arange(len(sizes)).repeat(sizes)
    closed = draw(st.integers(0, len(sizes))) if len(sizes) > 1 else len(sizes)
    usable = (of_device != closed).nonzero()[0]
    home = np.array(draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=16)))
    job = np.sort(np.array(draw(st.permutations(range(40))))[: len(home)])
    held = draw(st.permutations(usable.tolist()))[: len(home)]
    device = np.full(len(home), -1)
    device[: len(held)] = held
    ranks = st.lists(st.integers(0, 3), min_size=len(home), max_size=len(home))
    rounds = [np.array(draw(ranks), dtype=float) for _ in range(3)]
    sites = np.array(draw(st.permutations(range(len(sizes))))) if draw(st.booleans()) else None
    return home, device, usable, of_device, job if draw(st.booleans()) else None, rounds, sites


def _moves(case: tuple[Any, ...]) -> list[list[list[int]]]:
    *state, rounds, sites = case
    turns = DeviceTurns(*state)
    assert turns.fit()
    return [[each.tolist() for each in turns.take(ranks, sites)] for ranks in rounds]


@needs_compiled
@given(_rounds())
def test_the_compiled_turns_are_the_same(case: tuple[Any, ...]) -> None:
    with Pure(device_turns):
        expected = _moves(case)
    assert _moves(case) == expected


ROW, BEGIN, MOVES = np.array([0, 1]), np.array([0, 1]), np.empty((3, 2), dtype=np.int64)
HOME, DEVICES, HELD = np.array([0, 0]), np.array([3]), np.array([-1, 3])


@needs_compiled
@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (ROW, HOME + 1, None, BEGIN, DEVICES, None, HELD.copy(), MOVES.copy()),
        (ROW + 1, HOME, None, BEGIN, DEVICES, None, HELD.copy(), MOVES.copy()),
        (ROW, HOME, None, BEGIN + 1, DEVICES, None, HELD.copy(), MOVES.copy()),
        (ROW, HOME, None, BEGIN[::-1].copy(), DEVICES, None, HELD.copy(), MOVES.copy()),
        (ROW, HOME, ROW[:1], BEGIN, DEVICES, None, HELD.copy(), MOVES.copy()),
        (ROW, HOME, None, BEGIN, -DEVICES, None, HELD.copy(), MOVES.copy()),
        (ROW, HOME, None, BEGIN, DEVICES, ROW + 5, HELD.copy(), MOVES.copy()),
        (ROW, HOME, None, BEGIN, DEVICES, None, HELD + 1, MOVES.copy()),
        (ROW, HOME, None, BEGIN, DEVICES, None, HELD.copy(), MOVES[:2].copy()),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[Any, ...]) -> None:
    assert compiled is not None
    with pytest.raises((TypeError, ValueError)):
        compiled.device_turns(*arguments)


PASSES = np.array([0.5, 1.5])


@needs_compiled
@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (PASSES, 9, PASSES[:1].copy()),
        (PASSES, -1, PASSES.copy()),
        (PASSES, 16, PASSES.copy()),
        (PASSES, float("nan"), PASSES.copy()),
        (PASSES, 2.0**32 + 9, PASSES.copy()),
        (PASSES, 1e300, PASSES.copy()),
        (PASSES, "9", PASSES.copy()),
        (ROW, 9, PASSES.copy()),
        (PASSES[::-1], 9, PASSES.copy()),
    ],
)
def test_wrong_arguments_of_ranks_are_refused(arguments: tuple[Any, ...]) -> None:
    assert compiled is not None
    with pytest.raises((TypeError, ValueError)):
        compiled.pass_ranks(*arguments)
