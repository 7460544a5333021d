"""Whole devices for virtual tenants, in the order of their urgency."""

from copy import deepcopy

import numpy as np
import pytest

from fairlead.mechanisms.rounding.apportionment import Apportionment


def random_round(seed: int) -> Apportionment:
    """Return a round of virtual tenants with equal gangs, some debts near whole devices."""
    rng = np.random.default_rng(seed)
    rows, width, gang = int(rng.integers(1, 12)), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    ideal = rng.random((rows, width)) * rng.integers(0, 4, (rows, width))
    due = ideal + rng.normal(size=ideal.shape) * gang
    whole = rng.random(ideal.shape) < 0.3
    due[whole] = due[whole].round()
    jobs = rng.integers(0, 6, rows).tolist()
    ends = np.cumsum(jobs).tolist()
    return Apportionment(
        due=due,
        ideal=ideal,
        gang=[gang] * rows,
        missed=rng.random(ideal.shape) * (rng.random(ideal.shape) < 0.5),
        early=[False] * width,
        here=rng.integers(0, 2, ideal.shape) > 0,
        waiting=[list(range(end - n, end)) for end, n in zip(ends, jobs, strict=True)],
        free=rng.integers(0, 8, width).tolist(),
    )


@pytest.mark.parametrize("seed", range(200))
def test_offers_sorted_at_once_are_served_as_one_after_the_other(seed: int) -> None:
    sorted_once = random_round(seed)
    one_by_one = deepcopy(sorted_once)
    sorted_once.serve()
    one_by_one._serve_ahead()
    assert sorted_once.picked == one_by_one.picked
    assert sorted_once.free == one_by_one.free
    np.testing.assert_array_equal(sorted_once.due, one_by_one.due)
