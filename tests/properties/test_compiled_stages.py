"""The compiled steps of a climb's stage give the results of the Python code, bit for bit."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nst
from tests.properties.test_compiled import Pure, needs_compiled

from fairlead.compiled import compiled
from fairlead.solve.paths import class_pairs
from fairlead.solve.paths.class_pairs import ClassPairs

# Few different numbers, so that costs tie.
gains = st.sampled_from([0.0, 1.0, 2.0, 4.0]) | st.floats(0.1, 4.0)
parts = st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(0.0, 1.0)


@st.composite
def _stages(draw: st.DrawFn) -> tuple[Any, ...]:
    classes, width = draw(st.integers(1, 6)), draw(st.integers(1, 4))

    def numbers(shape: Any, elements: Any) -> Any:
        return draw(nst.arrays(np.float64, shape, elements=elements))

    gain = numbers((classes, width), gains)
    gain[gain.max(axis=1) == 0.0, 0] = 1.0
    size = numbers(classes, st.sampled_from([1.0, 2.0]))
    tie_cost = size[:, None] * (1.0 + 1e-5 * numbers((classes, width), parts))
    level = gain.max(axis=1) * numbers(classes, parts)
    prices, tie_prices, direction = np.zeros((3, width + 1))
    prices[:width] = numbers(width, parts)
    tie_prices[:width] = numbers(width, parts) - 0.5
    direction[:width] = numbers(width, parts) - 0.5
    held, rate = size * 2.0, numbers(classes, parts)
    return (gain, size, tie_cost), level, (prices, tie_prices, direction), held, rate


def _results(case: tuple[Any, ...]) -> str:
    table, level, prices, held, rate = case
    pairs = ClassPairs(*table)
    everyone = np.arange(pairs.classes)
    pairs.choose(everyone, level, prices[0], prices[1])
    tied = pairs.tied(level, prices[0], 1e-7, 0.0)
    results = [
        pairs.pair.tolist(),
        tied,
        pairs.tied(level, prices[0], -1e-10),
        pairs.next_marginal(level, prices, tied[:1], np.inf),
        pairs.next_marginal(level, prices, [], 0.125),
    ]
    pairs.basic[0] = 1
    # Levels have moved, so that other pairs span them.
    results += [pairs.use(held, level, rate), pairs.use(held, level * 0.5, rate, prices[:2])]
    return repr([*results, pairs.pair.tolist(), pairs.top.tolist(), pairs.bottom.tolist()])


@needs_compiled
@given(_stages())
def test_the_compiled_steps_of_a_stage_are_the_same(case: tuple[Any, ...]) -> None:
    with Pure(class_pairs):
        expected = _results(case)
    assert _results(case) == expected


TABLE, ENDS, STATE = np.ones((2, 2, 3)), np.ones((2, 2)), np.zeros((3, 2), np.int64)
LEVEL, PRICES = np.ones(2), np.ones(3)
STAGE = TABLE, ENDS, STATE, LEVEL, PRICES, PRICES


@needs_compiled
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("choose_pairs", ()),
        ("choose_pairs", (*STAGE, np.array([2]))),
        ("choose_pairs", (*STAGE, np.array([-1]))),
        ("choose_pairs", (TABLE[:1], *STAGE[1:], np.array([0]))),
        ("choose_pairs", (TABLE, ENDS[:1], *STAGE[2:], np.array([0]))),
        ("choose_pairs", (TABLE, ENDS, STATE + 3, *STAGE[3:], np.array([0]))),
        ("choose_pairs", (TABLE, ENDS, STATE[:2], *STAGE[3:], np.array([0]))),
        ("choose_pairs", (np.ones((2, 2, 17)), *STAGE[1:4], np.ones(17), np.ones(17), STATE[0])),
        ("stage_use", (*STAGE, LEVEL, PRICES, False)),
        ("stage_use", (*STAGE, PRICES, LEVEL, False)),
        ("tied_columns", (*STAGE[:5], LEVEL, 0.0, 0.0)),
        ("tied_columns", (*STAGE, 0.0, "no")),
        ("next_marginal", (*STAGE, LEVEL, [], 1.0)),
        ("next_marginal", (*STAGE, PRICES, (), 1.0)),
        ("next_marginal", (*STAGE, PRICES, ["no"], 1.0)),
    ],
)
def test_compiled_steps_reject_what_does_not_fit(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError)):
        getattr(compiled, name)(*arguments)
