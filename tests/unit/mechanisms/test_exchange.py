"""The choice of a round is an assignment of greatest weight."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairlead.mechanisms._rounds.candidates import CandidateEntries
from fairlead.mechanisms._rounds.selection import RoundSelection
from fairlead.mechanisms._rounds.urgency import (
    full_time_first,
    last_to_end_first,
    shortest_first,
)

weights = st.integers(1, 4).flatmap(
    lambda columns: st.lists(
        st.lists(st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.25]), min_size=columns, max_size=columns),
        min_size=1,
        max_size=6,
    )
)


def _best(weight: np.ndarray, free: list[int]) -> float:
    columns = range(-1, weight.shape[1])
    best = 0.0
    for choice in product(columns, repeat=len(weight)):
        used = [choice.count(j) for j in range(weight.shape[1])]
        chosen = [(r, c) for r, c in enumerate(choice) if c >= 0]
        if all(u <= f for u, f in zip(used, free, strict=True)):
            best = max(best, sum(weight[r, c] for r, c in chosen))
    return best


@given(weights, st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_where_devices_would_stay_free_the_assignment_has_the_greatest_total_weight(
    rows: list[list[float]], room: list[int]
) -> None:
    weight = np.array(rows)
    free = room[: weight.shape[1]]
    row, column = weight.nonzero()
    choice = RoundSelection.of(np.ones(len(weight), dtype=np.int64), list(free))
    choice.assign(CandidateEntries(row, column, weight[row, column]))
    chosen = (choice.wanted >= 0).nonzero()[0].tolist()
    columns = choice.wanted[chosen].tolist()
    assert (weight[chosen, columns] > 0).all()
    assert [columns.count(j) + choice.free[j] for j in range(len(free))] == free
    waiting = [r for r in row.tolist() if r not in chosen]
    if any(choice.free) and waiting:
        assert weight[chosen, columns].sum() >= _best(weight, free) - 1e-6


def test_a_gang_runs_whole_or_not_at_all() -> None:
    choice = RoundSelection.of(np.array([2, 2, 1]), [3])
    choice.assign(
        CandidateEntries(np.arange(3), np.zeros(3, dtype=np.int64), np.array([3.0, 2.0, 1.0]))
    )
    assert choice.wanted.tolist() == [0, -1, 0]
    assert choice.free == [0]


def test_a_gang_replaces_smaller_jobs_to_which_less_is_owed_together() -> None:
    gang, weight = np.array([4, 1, 1, 1, 1]), np.array([8.0, 9.0, 4.0, 4.0, 4.0])
    entries = CandidateEntries(np.arange(5), np.zeros(5, dtype=np.int64), weight)
    choice = RoundSelection.of(gang, [4])
    choice.assign(entries)
    assert choice.wanted.tolist() == [0, -1, -1, -1, -1]
    # Four jobs that must run as urgently come first, and the gang in a later round.
    choice = RoundSelection.of(gang, [4])
    choice.assign(entries._replace(weight=np.array([8.0, 9.0, 9.0, 9.0, 9.0])))
    assert choice.wanted.tolist() == [-1, 0, 0, 0, 0]


def test_jobs_that_make_way_for_a_gang_run_elsewhere() -> None:
    row, column = np.array([0, 1, 1, 2]), np.array([0, 0, 1, 0])
    weight = np.array([8.0, 8.5, 4.0, 4.0])
    choice = RoundSelection.of(np.array([2, 1, 1]), [2, 1])
    choice.assign(CandidateEntries(row, column, weight))
    assert choice.wanted.tolist() == [0, 1, -1]
    assert choice.free == [0, 0]


def test_a_gang_makes_way_for_no_more_jobs_than_it_must() -> None:
    choice = RoundSelection.of(np.array([2, 1, 1, 1, 1]), [4])
    weight = np.array([8.0, 9.0, 8.9, 8.8, 4.0])
    choice.assign(CandidateEntries(np.arange(5), np.zeros(5, dtype=np.int64), weight))
    assert choice.wanted.tolist() == [0, 0, 0, -1, -1]


def test_chosen_jobs_move_to_idle_devices_that_are_clearly_faster() -> None:
    choice = RoundSelection.of(np.array([1, 1, 2]), [1, 0, 1])
    choice.wanted[:] = [1, 1, 2]
    speed = np.array([[1.01, 1.0, 0.0], [3.0, 1.0, 0.0], [9.0, 0.0, 1.0]])
    assert choice.move_to_faster(speed)
    assert choice.wanted.tolist() == [1, 0, 2]  # the first gains too little, the gang has no room
    assert choice.free == [0, 1, 1]
    assert not choice.move_to_faster(speed)


def test_rows_that_need_all_of_the_time_come_first() -> None:
    entries = CandidateEntries(np.arange(3), np.zeros(3, dtype=np.int64), np.array([9.0, 8.0, 8]))
    share = np.array([[0.5, 0.0], [0.95, 0.05], [0.5, 0.5]])
    first = full_time_first(entries, share, share.sum(axis=1))
    assert (-first.weight).argsort().tolist() == [1, 2, 0]


def test_rows_that_run_ahead_of_their_shares_are_those_with_the_least_time_left() -> None:
    """The third needs all of the time; the first has two accelerators and is ahead on one."""
    share = np.array([[0.2, 0.2], [0.4, 0.0], [0.0, 1.0], [0.0, 0.0]])
    owed = np.array([[-3600.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    tables = np.stack([share, owed, np.zeros_like(share), np.zeros_like(share)])
    entries = shortest_first(tables, 360.0, np.array([1.0, 2.0, 9.0, 0.5]), share.sum(axis=1))
    order = entries.by_falling_weight()
    assert list(zip(order.row.tolist(), order.column.tolist(), strict=True)) == [
        (2, 1),
        (0, 1),
        (0, 0),
        (1, 0),
    ]
    on = np.array([0, -1, -1, -1])
    staying = shortest_first(
        tables, 360.0, np.array([1.0, 2.0, 9.0, 0.5]), share.sum(axis=1), on
    ).by_falling_weight()
    assert staying.column.tolist()[1:3] == [0, 1]


def test_packed_jobs_that_end_last_come_first_and_run_alone_without_a_partner() -> None:
    """The third job is the longest and needs all of the time, half of it with each other job."""
    members = np.array([[0, -1], [1, -1], [2, -1], [0, 1], [0, 2], [1, 2]])
    held = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    pairs = CandidateEntries(np.array([3, 4, 5]), np.zeros(3, dtype=np.int64), np.full(3, 105.0))
    left_s = np.array([10.0, 20.0, 90.0])
    first = last_to_end_first(pairs, members, held, left_s).by_falling_weight()
    assert list(zip(first.row.tolist(), first.column.tolist(), strict=True)) == [
        (4, 0),
        (5, 0),
        (2, 0),
        (3, 0),
    ]
    known = pairs._replace(row=np.array([2, 4, 5]))
    assert last_to_end_first(known, members, held, left_s).row.tolist() == [2, 4, 5]
    # A longer job has no share, as on an accelerator that is down.
    absent = last_to_end_first(
        pairs._replace(row=pairs.row + 1),
        np.insert(members, 3, [3, -1], axis=0),
        np.append(held, [[0.0, 0.0]], axis=0),
        np.append(left_s, 1e6),
    )
    assert absent.by_falling_weight().row.tolist() == [5, 6, 2, 4]
    in_time = np.array([[1.0, 0.0], [1.0, 0.0], [0.9, 0.0]])
    assert last_to_end_first(pairs, members, in_time, left_s) is pairs


def test_pick_passes_over_jobs_taken_and_gangs_too_large() -> None:
    choice = RoundSelection.of(np.array([2, 1, 1]), [2, 1])
    choice.pick(np.array([0, 0, 1, 2]), np.array([0, 1, 0, 1]))
    assert choice.wanted.tolist() == [0, -1, 1]


def test_fill_gives_idle_devices_to_waiting_jobs_where_they_run_best() -> None:
    choice = RoundSelection.of(np.array([1, 1]), [1, 1])
    choice.fill(np.array([[4.0, 1.0], [1.0, 2.0]]), np.zeros((2, 2)))
    assert choice.wanted.tolist() == [0, 1]


def test_fill_serves_those_least_ahead_of_their_share_first() -> None:
    choice = RoundSelection.of(np.array([1, 1]), [1])
    choice.fill(np.ones((2, 1)), np.array([[-300.0], [0.0]]))
    assert choice.wanted.tolist() == [-1, 0]
