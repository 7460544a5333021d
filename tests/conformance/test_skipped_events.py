"""Simulated rounds without events end in the state that the events lead to."""

from dataclasses import replace
from typing import Any

import pytest
from tests.conformance.registered import NAMES, make_mechanism

from fairlead.core import state_bytes
from fairlead.core.handlers.turn_rounds import apply_rounds, apply_turn
from fairlead.files import read_speeds
from fairlead.mechanisms._tickets.turn_run import ROUNDS, TurnRun
from fairlead.mechanisms.base import TakesTurns
from fairlead.model.cluster import Cluster
from fairlead.model.events import NodeLost, NodeReturned
from fairlead.model.job import Job
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario

SPEEDS = read_speeds("gandiva-fair")
WORKLOADS = ("VAE", "SuperResolution", "DCGAN")
CLUSTER = Cluster.of({"v100": 2, "p100": 2, "k80": 4}, per_node=2)
COLUMNS = ("device_s", "started_at", "finished_at", "first_steps_at", "preemptions", "migrations")


def _scenario(name: str, tenants: str, restore_cost_s: float) -> Scenario:
    jobs = [
        Job(
            id=f"j{i}",
            tenant=tenants[i % len(tenants)],
            workload=WORKLOADS[i % 3],
            total_steps=20_000.0 + 3_001.7 * (i % 7),
            arrival_at=217.3 * i,
            weight=1.0 + i % 2 / 3,
        )
        for i in range(26)
    ]
    lost = CLUSTER.nodes[-1].id
    return Scenario(
        cluster=CLUSTER,
        speeds=SPEEDS,
        jobs=jobs,
        mechanism=make_mechanism(name),
        restore_cost_s=restore_cost_s,
        node_events=[NodeLost(3_003.0, lost), NodeReturned(7_207.0, lost)],
    )


@pytest.mark.parametrize(("tenants", "restore_cost_s"), [("a", 0.0), ("abc", 61.5)])
@pytest.mark.parametrize("name", NAMES)
def test_rounds_without_events_end_in_the_same_state(
    name: str, tenants: str, restore_cost_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An observer of events makes the simulation send every event."""
    scenario = _scenario(name, tenants, restore_cost_s)
    turns: list[int] = []

    def counted(*turn: Any) -> Any:
        turns.append(1)
        return apply_turn(*turn)

    def counted_run(state: Any, run: TurnRun) -> None:
        turns.append(int(run.counts[ROUNDS]))
        apply_rounds(state, run)

    monkeypatch.setattr("fairlead.sim.turn_rounds.apply_turn", counted)
    monkeypatch.setattr("fairlead.sim.turn_rounds.apply_rounds", counted_run)
    by_events, before = simulate(replace(scenario, on_event=lambda _: None))
    assert not turns
    skipping, after = simulate(scenario)
    assert before is not None
    assert after is not None
    assert state_bytes(before) == state_bytes(after)
    assert (by_events.rounds, by_events.ended_at) == (skipping.rounds, skipping.ended_at)
    for column in COLUMNS:
        assert getattr(by_events, column).tobytes() == getattr(skipping, column).tobytes()
    if isinstance(scenario.mechanism, TakesTurns):
        assert sum(turns) > skipping.rounds / 8
    else:
        assert not turns
