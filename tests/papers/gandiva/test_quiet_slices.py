"""Slices that Gandiva decides at once have the plan and the memory of a full decision."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core import encode_event, state_bytes
from fairlead.core.handlers.repeated_rounds import repeat_rounds
from fairlead.mechanisms.gandiva import Gandiva
from fairlead.mechanisms.gandiva.changed_slices import changed_slice
from fairlead.mechanisms.gandiva.memory import GandivaMemory
from fairlead.mechanisms.gandiva.quiet_slices import quiet_slice
from fairlead.mechanisms.gandiva.turn_slices import turn_slice
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster
from fairlead.model.events import NodeLost, NodeReturned, PlanReady
from fairlead.model.job import Job
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario

MECHANISM = "fairlead.mechanisms.gandiva.mechanism"
ALONE = {"big": (8.0, 4.0, 1.0), "small": (2.0, 2.0, 1.5), "cnn": (5.0, 3.0, 1.0)}
SPEEDS = SpeedTable(
    {
        SpeedKey(name, gang, accelerator, partner=partner): speed * gang * (0.8 if partner else 1)
        for name, row in ALONE.items()
        for partner in (None, *ALONE)
        for gang in (1, 2)
        for accelerator, speed in zip(("v100", "p100", "k80"), row, strict=True)
    }
)


class Compared(Gandiva):
    """Decides every slice in full as well, and counts those decided at once."""

    quiet = 0
    quiet_while_packed = 0
    turns = 0
    changed = 0

    def plan(self, snap: Snapshot, memory: GandivaMemory) -> tuple[Plan, GandivaMemory]:
        quiet: list[GandivaMemory] = []
        turns: list[Plan] = []
        changed: list[Plan] = []

        def noted_quiet(*args: Any) -> GandivaMemory | None:
            after = quiet_slice(*args)
            quiet.extend(() if after is None else (after,))
            return after

        def noted_turn(*args: Any) -> tuple[Plan, GandivaMemory] | None:
            after = turn_slice(*args)
            turns.extend(() if after is None else after[:1])
            return after

        def noted_change(*args: Any) -> tuple[Plan, GandivaMemory] | None:
            after = changed_slice(*args)
            changed.extend(() if after is None else after[:1])
            return after

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"{MECHANISM}.quiet_slice", noted_quiet)
            patch.setattr(f"{MECHANISM}.turn_slice", noted_turn)
            patch.setattr(f"{MECHANISM}.changed_slice", noted_change)
            answer = super().plan(snap, memory)
            for name in ("unchanged_units", "changed_slice"):
                patch.setattr(f"{MECHANISM}.{name}", lambda *_: None)
            in_full = super().plan(snap, memory)
        lines = [encode_event(PlanReady(0.0, 0, *each)) for each in (answer, in_full)]
        assert lines[0] == lines[1]
        Compared.quiet += len(quiet)
        Compared.turns += sum(len(plan.start) > 0 for plan in turns)
        Compared.changed += len(changed)
        Compared.quiet_while_packed += any(
            len(unit) > 1 for after in quiet for unit in after.units
        )
        return answer


@pytest.mark.parametrize(
    ("utilization", "gangs"), [(0.3, (1, 2, 1, 1)), (None, (1, 2, 1, 1)), (None, (1,))]
)
def test_slices_decided_at_once_equal_full_decisions(
    utilization: float | None, gangs: tuple[int, ...]
) -> None:
    """Jobs come, are packed or take turns, leave and spread over servers."""
    Compared.quiet = Compared.quiet_while_packed = Compared.turns = Compared.changed = 0
    jobs = [
        Job(
            id=f"j{i}",
            workload=("big", "small", "cnn")[i % 3],
            gang=gangs[i % len(gangs)],
            total_steps=2_000 + 700 * i,
            arrival_at=(150.0 if utilization else 40.0) * i,
            weight=1.0 + i % 2,
            utilization=utilization,
            memory_gib=2.0,
        )
        for i in range(12)
    ]
    cluster = Cluster.of({"v100": 2, "p100": 2, "k80": 4}, per_node=2)
    scenario = Scenario(cluster=cluster, speeds=SPEEDS, jobs=jobs, mechanism=Compared())
    # With an observer of events every slice is planned.
    record, _ = simulate(replace(scenario, on_event=lambda _: None))
    assert not np.isnan(record.finished_at).any()
    assert Compared.quiet > 10
    if utilization:
        assert Compared.quiet_while_packed > 5
    else:
        assert Compared.turns > 10
    assert (Compared.changed > 5) == (gangs == (1,))


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(ALONE)), st.floats(0, 900), st.integers(50, 4000)),
        min_size=4,
        max_size=16,
    ),
    st.booleans(),
)
def test_arrivals_and_departures_of_single_devices_equal_full_decisions(
    drawn: list[tuple[str, float, int]], migration: bool
) -> None:
    """Some jobs may use two accelerators only; a node is lost and returns."""
    jobs = [
        Job(
            id=f"j{i}",
            workload=workload,
            total_steps=float(steps),
            arrival_at=at,
            weight=1.0 + i % 3 / 7,
            accelerators=("p100", "k80") if i % 4 == 3 else None,
        )
        for i, (workload, at, steps) in enumerate(sorted(drawn, key=lambda one: one[1]))
    ]
    cluster = Cluster.of({"v100": 2, "p100": 2, "k80": 2}, per_node=2)
    node = cluster.nodes[0].id
    events = (NodeLost(400.0, node), NodeReturned(700.0, node))
    scenario = Scenario(
        cluster=cluster,
        speeds=SPEEDS,
        jobs=jobs,
        mechanism=Compared(migration=migration),
        node_events=events,
    )
    record, _ = simulate(replace(scenario, on_event=lambda _: None))
    assert not np.isnan(record.finished_at).any()


@pytest.mark.parametrize("gangs", [(1,), (1, 2)])
@pytest.mark.parametrize("restore_cost_s", [0.0, 20.0])
def test_slices_taken_at_once_leave_the_scheduler_in_the_same_state(
    gangs: tuple[int, ...], restore_cost_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An observer of events makes the simulation send every event."""
    jobs = [
        Job(
            id=f"j{i}",
            workload=("big", "small", "cnn")[i % 3],
            gang=gangs[i % len(gangs)],
            total_steps=3_000.0 + 2_001.3 * i,
            arrival_at=333.3 * i,
            weight=1.0 + i % 3 / 7,
        )
        for i in range(14)
    ]
    scenario = Scenario(
        cluster=Cluster.of({"v100": 2, "p100": 2, "k80": 4}, per_node=2),
        speeds=SPEEDS,
        jobs=jobs,
        mechanism=Gandiva(),
        restore_cost_s=restore_cost_s,
    )
    taken: list[int] = []

    def noted(state: Any, starts_at: FloatArray, *rest: Any) -> None:
        taken.append(len(starts_at))
        repeat_rounds(state, starts_at, *rest)

    monkeypatch.setattr("fairlead.sim.driver.repeat_rounds", noted)
    one_by_one, before = simulate(replace(scenario, on_event=lambda _: None))
    assert not taken
    at_once, after = simulate(scenario)
    assert sum(taken) > at_once.rounds / 8
    assert before is not None
    assert after is not None
    assert state_bytes(before) == state_bytes(after)
    assert (one_by_one.rounds, one_by_one.ended_at) == (at_once.rounds, at_once.ended_at)
    for column in ("device_s", "started_at", "finished_at", "first_steps_at", "migrations"):
        assert getattr(one_by_one, column).tobytes() == getattr(at_once, column).tobytes()
