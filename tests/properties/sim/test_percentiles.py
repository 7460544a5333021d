"""Percentiles of figures are those of numpy, to the last bit."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairlead.sim.metrics import median, percentile

TIMES = st.lists(st.floats(0.0, 1e12), min_size=1, max_size=40)


@given(TIMES)
def test_the_median_is_that_of_numpy(times: list[float]) -> None:
    assert median(np.array(times)) == np.median(times)


@given(TIMES, st.sampled_from([0, 10, 50, 90, 99, 100]))
def test_percentiles_are_those_of_numpy(times: list[float], percent: int) -> None:
    assert percentile(np.array(times), percent) == np.percentile(times, percent)
