"""Gang-aware stride and split stride as values."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.mechanisms._tickets.pass_ranks import pass_ranks
from fairlead.mechanisms.gandiva_fair.stride import (
    Aggregate,
    CentralStride,
    LargeJob,
    NodeStride,
    SiteStrides,
    gang_aware_stride,
)


def _runs(local: NodeStride, quanta: int) -> Counter[int]:
    count: Counter[int] = Counter()
    for _ in range(quanta):
        chosen = local.choose()
        count.update(chosen)
        local = local.charged(chosen)
    return count


def test_time_is_proportional_to_tickets_on_one_device() -> None:
    local = NodeStride(1).joined(0, 1, 3.0).joined(1, 1, 2.0).joined(2, 1, 1.0)
    assert _runs(local, 600) == {0: 300, 1: 200, 2: 100}


def test_a_gang_that_does_not_fit_is_passed_over_and_runs_next() -> None:
    local = NodeStride(4).joined(0, 1, 1.0).joined(1, 4, 1.0)
    assert local.choose() == (0,)
    local = local.charged((0,))
    assert local.choose() == (1,)


def test_equal_passes_are_settled_by_the_smaller_gang_then_by_arrival() -> None:
    assert gang_aware_stride([0.0, 0.0, 0.0], [2, 1, 1], 2) == [1, 2]


def test_sums_of_strides_that_differ_by_rounding_only_are_equal() -> None:
    assert sum([0.1] * 3) != 0.3
    assert gang_aware_stride([sum([0.1] * 3), 0.3], [1, 1], 1) == [0]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 12),
            st.sampled_from([0.0, 1.0, 7e4, 3e5, 5e6]),
            st.sampled_from([0.0, 1e-12, -1e-12, 3e-11]),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_passes_compare_as_if_rounded_to_nine_decimals(
    parts: list[tuple[int, float, float]],
) -> None:
    passes = [base + halves * 0.5e-9 + error for halves, base, error in parts]
    ranks = pass_ranks(np.array(passes), 9).tolist()
    rounded = [round(at, 9) for at in passes]
    for a, one in zip(ranks, rounded, strict=True):
        for b, other in zip(ranks, rounded, strict=True):
            assert (a < b) == (one < other)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-1, 2), st.integers(1, 4), st.integers(0, 5)),
        max_size=20,
    )
)
def test_all_sites_together_choose_as_each_does_alone(jobs: list[tuple[int, int, int]]) -> None:
    size = [4, 8, 5]
    home, gang, passes = np.array(jobs, dtype=np.int64).reshape(-1, 3).T
    chosen = SiteStrides.of(home, gang, np.array(size)).choose(passes / 3.0)
    expected: list[int] = []
    for site in dict.fromkeys(home[home >= 0].tolist()):
        rows = (home == site).nonzero()[0]
        columns = (passes[rows] / 3.0).tolist(), gang[rows].tolist()
        expected += rows[gang_aware_stride(*columns, size[site])].tolist()
    assert chosen == expected


def test_one_and_four_device_jobs_leave_devices_idle_rather_than_be_unfair() -> None:
    """§3.3: both get the same device time, although three devices are idle meanwhile."""
    local = NodeStride(4).joined(0, 1, 1.0).joined(1, 4, 1.0)
    runs = _runs(local, 500)
    assert runs[0] == 4 * runs[1] == 400


def test_a_new_job_joins_at_the_least_pass_and_gets_nothing_for_the_past() -> None:
    local = NodeStride(1).joined(0, 1, 1.0)
    for _ in range(100):
        local = local.charged(local.choose())
    runs = _runs(local.joined(1, 1, 1.0), 10)
    assert runs == {0: 5, 1: 5}


def test_who_ran_ahead_elsewhere_joins_behind_the_least_pass() -> None:
    local = NodeStride(1).joined(0, 1, 1.0).joined(1, 1, 0.5, late=1.5)
    assert local.passes == (0.0, 3.0)
    assert [_runs(local, n)[1] for n in (3, 4, 5)] == [0, 0, 1]


def test_part_of_a_quantum_is_charged_in_part() -> None:
    local = NodeStride(2).joined(0, 2, 0.5).charged((0,), 0.25)
    assert local.passes == (1.0,)
    assert local.without(0) == NodeStride(2)


def _central(due: dict[str, float]) -> CentralStride:
    return CentralStride(
        {0: 4, 1: 4},
        (LargeJob(9, {0: 4, 1: 4}, due["large"]),),
        (Aggregate(0, 4, due["a"]), Aggregate(1, 4, due["b"])),
    )


def test_a_large_job_runs_only_when_it_is_due_on_all_its_nodes() -> None:
    assert _central({"large": 0.0, "a": 1.0, "b": 1.0}).choose().large == [9]
    turn = _central({"large": 1.0, "a": 0.0, "b": 2.0}).choose()
    assert (turn.large, turn.left) == ([], {0: 4, 1: 4})


def test_small_jobs_use_what_a_large_one_leaves_of_a_node() -> None:
    central = CentralStride(
        {0: 4, 1: 4}, (LargeJob(9, {0: 4, 1: 2}, 0.0),), (Aggregate(1, 3, 1.0),)
    )
    turn = central.choose()
    assert (turn.large, turn.left) == ([9], {1: 2})


def test_a_large_job_runs_beside_small_ones_that_cannot_use_the_rest() -> None:
    central = CentralStride(
        {0: 4, 1: 4}, (LargeJob(9, {0: 4, 1: 2}, 1.0),), (Aggregate(1, 2, 0.0),)
    )
    turn = central.choose()
    assert (turn.large, turn.left) == ([9], {1: 2})
