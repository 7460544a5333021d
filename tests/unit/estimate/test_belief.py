"""Beliefs that measurements improve: noise, neighbours, outliers, changes and lies."""

import math

import numpy as np
import pytest

from fairlead.estimate.belief import Belief
from fairlead.estimate.cells import Cells
from fairlead.estimate.gaussian_process import prior
from fairlead.estimate.kernels import SPEED_TERMS
from fairlead.files.bundled import data_sheets
from fairlead.model.speeds.key import SpeedKey

KEYS = [SpeedKey(w, 1, a) for w in ("bert-bs16", "bert-bs32", "gpt") for a in ("k80", "v100")]


def belief() -> Belief:
    return Belief(*prior(SPEED_TERMS, Cells.of(KEYS, data_sheets())))


def speed(of: Belief, cell: int) -> float:
    return float(of.estimate().median[cell])


def test_without_measurements_the_data_sheets_decide() -> None:
    start = belief().estimate()
    assert start.median[1] > 2 * start.median[0]
    assert start.sd.min() > 1.0


def test_a_measurement_counts_for_its_cell_and_for_those_that_resemble_it() -> None:
    of = belief()
    before = of.estimate()
    assert of.measure(0, 10.0) == "taken"
    after = of.estimate()
    assert after.median[0] == pytest.approx(10.0, rel=0.02)
    assert after.sd[0] < 0.05
    # Its speed elsewhere follows, by the ratio of the data sheets; the doubt there shrinks less.
    assert after.median[1] / after.median[0] == pytest.approx(
        before.median[1] / before.median[0], rel=0.2
    )
    assert after.sd[0] < after.sd[1] < before.sd[1] / 2
    assert after.sd[2] < after.sd[4] < before.sd[4]


def test_noise_averages_out() -> None:
    of, rng = belief(), np.random.default_rng(0)
    for factor in np.exp(rng.normal(0.0, 0.03, 40)):
        of.measure(3, 7.0 * float(factor))
    assert speed(of, 3) == pytest.approx(7.0, rel=0.02)


def test_a_declared_speed_is_believed_until_the_first_measurement() -> None:
    of, liar = belief(), belief()
    of.measure(0, 10.0)
    liar.declare(0, 20.0)
    liar.declare(1, 40.0)
    assert speed(liar, 0) == pytest.approx(20.0, rel=0.4)
    liar.measure(0, 10.0)
    assert speed(liar, 0) == pytest.approx(speed(of, 0), rel=0.01)


def test_one_outlier_is_set_aside() -> None:
    of = belief()
    verdicts = [of.measure(0, value) for value in (10.0, 10.1, 25.0, 9.9, 2.0, 10.0)]
    assert verdicts == ["taken", "taken", "set aside", "taken", "set aside", "taken"]
    assert speed(of, 0) == pytest.approx(10.0, rel=0.02)


def test_a_lasting_change_is_believed_at_its_second_measurement_and_leaves_others_alone() -> None:
    of = belief()
    for _ in range(5):
        of.measure(0, 10.0)
        of.measure(2, 20.0)
    assert [of.measure(0, 4.0), of.measure(0, 4.1), of.measure(0, 4.05)] == [
        "set aside",
        "changed",
        "taken",
    ]
    assert speed(of, 0) == pytest.approx(4.05, rel=0.02)
    assert speed(of, 2) == pytest.approx(20.0, rel=0.02)


def test_slow_drift_is_followed() -> None:
    of = belief()
    for step in range(60):
        of.measure(0, 10.0 * math.exp(-0.01 * step))
    assert speed(of, 0) == pytest.approx(10.0 * math.exp(-0.59), rel=0.05)


def test_equal_measurements_give_equal_beliefs() -> None:
    first, second = belief(), belief()
    for of in (first, second):
        for cell, value in ((0, 3.0), (3, 9.0), (0, 3.1), (4, 1.0)):
            of.measure(cell, value)
    assert first.estimate().mean.tolist() == second.estimate().mean.tolist()
