"""Turns of jobs: by the cost of restarts (``restart-s``), and of gangs that keep their places."""

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.mechanisms.fixed_shares import ROUND_S, V2, Fixed, snapshot, started

from fairlead.mechanisms._rounds.turns import turns_of_jobs
from fairlead.mechanisms.factory import create_mechanism
from fairlead.mechanisms.shares import Shares
from fairlead.model.capabilities import Capabilities, capabilities_of
from fairlead.model.cluster import Cluster
from fairlead.model.errors import UsageError
from fairlead.model.snapshot import Snapshot

HOUR_S = 3600.0


def with_costs(restart_s: list[float], received_h: float = 100.0) -> Snapshot:
    """Three jobs on two devices, the last of which waits and is owed a round."""
    received_s = [[received_h * HOUR_S]] * 3
    snap = snapshot(V2, [1, 1, 1], [[0, 1]], starts_at=ROUND_S, received_s=received_s)
    return replace(snap, restart_s=np.array(restart_s))


@pytest.mark.parametrize(
    ("policy", "mechanism", "weighs"),
    [
        ("max-min", None, False),
        ("max-min", "shares:restart-s=auto", True),
        ("max-min:packed", "units:restart-s=auto", True),
        ("oef", "tenants:restart-s=auto", True),
        ("fairlead", None, True),
        ("fairlead:packed", None, True),
        ("fairlead", "shares:restart-s=0", False),
        ("fairlead", "shares:restart-s=60", False),
    ],
)
def test_measured_costs_count_by_option_and_by_default_under_fairlead(
    policy: str, mechanism: str | None, weighs: bool
) -> None:
    assert capabilities_of(create_mechanism(policy, mechanism)).reads_restarts == weighs


@pytest.mark.parametrize("value", ["-1", "nan", "often"])
def test_other_values_of_the_option_are_rejected_in_one_line(value: str) -> None:
    with pytest.raises(UsageError, match=r"restart-s: .*: expected .*, or auto"):
        create_mechanism("max-min", f"shares:restart-s={value}")


def test_a_turn_is_long_for_the_cost_but_short_for_the_time_received() -> None:
    received_s = [[100 * HOUR_S], [4 * HOUR_S], [0.0]]
    snap = snapshot(V2, [1, 1, 1], received_s=received_s)
    assert turns_of_jobs(snap, ROUND_S) is None
    costly = turns_of_jobs(replace(snap, restart_s=np.full(3, 60.0)), ROUND_S)
    assert costly is not None
    assert costly.tolist() == [2 * HOUR_S, HOUR_S, ROUND_S]
    mixed = turns_of_jobs(replace(snap, restart_s=np.array([1.0, 10.0, 60.0])), ROUND_S)
    assert mixed is not None
    assert mixed.tolist() == [ROUND_S, 1200.0, ROUND_S]


def replaced(restart_s: list[float], received_h: float, rounds: int) -> bool:
    """Return whether a waiting job takes a device within some rounds, with shares of 2/3."""
    mechanism = Shares(Fixed({(i,): [2 / 3] for i in range(3)}), ROUND_S, restart_s="auto")
    memory = mechanism.initial()
    snap = with_costs(restart_s, received_h)
    for number in range(rounds):
        received_s = snap.received_s + np.array([[1.0], [1.0], [0.0]]) * number * ROUND_S
        starts_at = ROUND_S * (1 + number)
        now = replace(snap, starts_at=starts_at, at=starts_at, received_s=received_s)
        plan, memory = mechanism.plan(now, memory)
        if 2 in started(plan):
            return True
    return False


def test_costly_restarts_make_a_waiting_job_wait_longer_for_its_turn() -> None:
    assert replaced([0.0] * 3, 100.0, rounds=3)
    assert not replaced([60.0] * 3, 100.0, rounds=3)
    assert replaced([60.0] * 3, 100.0, rounds=25)  # its turn has come after two hours


def test_jobs_that_have_run_briefly_take_turns_as_if_restarts_were_free() -> None:
    assert replaced([60.0] * 3, received_h=0.1, rounds=3)


def rounds_until_replaced(capabilities: Capabilities, priority: float = 0.0) -> int:
    """Return the rounds that a gang with half a share waits for one that runs all the time.

    ``priority`` is that of the latter.
    """
    ranks = np.array([priority, 0.0])
    mechanism = Shares(Fixed({(0,): [1.0], (1,): [0.5]}, capabilities), ROUND_S)
    memory = mechanism.initial()
    for number in range(100):
        starts_at = number * ROUND_S
        snap = snapshot(
            Cluster.of({"v100": 3}),
            [2, 2],
            [[0, 0, -1]],
            starts_at=starts_at,
            received_s=[[starts_at], [0.0]],
        )
        ranked = replace(snap, priority=ranks, precedence=ranks)
        plan, memory = mechanism.plan(ranked, memory)
        if 1 in started(plan):
            return number
    return 100


TAKES_TURNS = Capabilities(reads_progress=False)
KEEPS_PLACES = Capabilities(reads_progress=False, keeps_places=True)


def test_a_gang_that_keeps_its_place_still_gives_way_to_many_rounds_owed() -> None:
    assert rounds_until_replaced(TAKES_TURNS) <= 3
    assert 10 < rounds_until_replaced(KEEPS_PLACES) < 30


def test_shares_decide_turns_where_jobs_have_priorities() -> None:
    assert rounds_until_replaced(KEEPS_PLACES, priority=1.0) == rounds_until_replaced(TAKES_TURNS)


def test_gangs_keep_their_places_under_fairlead_only() -> None:
    assert capabilities_of(create_mechanism("fairlead")).keeps_places
    assert not capabilities_of(create_mechanism("max-min")).keeps_places
