"""Slices that Gandiva decides at once have the plan and the memory of a full decision."""

from typing import Any

import numpy as np
import pytest

from fairlead.core import encode_event
from fairlead.mechanisms.gandiva import Gandiva
from fairlead.mechanisms.gandiva.memory import GandivaMemory
from fairlead.mechanisms.gandiva.quiet_slices import quiet_slice
from fairlead.mechanisms.gandiva.turn_slices import turn_slice
from fairlead.model.cluster import Cluster
from fairlead.model.events import PlanReady
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

    def plan(self, snap: Snapshot, memory: GandivaMemory) -> tuple[Plan, GandivaMemory]:
        quiet: list[GandivaMemory] = []
        turns: list[Plan] = []

        def noted_quiet(*args: Any) -> GandivaMemory | None:
            after = quiet_slice(*args)
            quiet.extend(() if after is None else (after,))
            return after

        def noted_turn(*args: Any) -> tuple[Plan, GandivaMemory] | None:
            after = turn_slice(*args)
            turns.extend(() if after is None else after[:1])
            return after

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"{MECHANISM}.quiet_slice", noted_quiet)
            patch.setattr(f"{MECHANISM}.turn_slice", noted_turn)
            answer = super().plan(snap, memory)
            patch.setattr(f"{MECHANISM}.unchanged_units", lambda *_: None)
            in_full = super().plan(snap, memory)
        lines = [encode_event(PlanReady(0.0, 0, *each)) for each in (answer, in_full)]
        assert lines[0] == lines[1]
        Compared.quiet += len(quiet)
        Compared.turns += sum(len(plan.start) > 0 for plan in turns)
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
    Compared.quiet = Compared.quiet_while_packed = Compared.turns = 0
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
    record, _ = simulate(Scenario(cluster=cluster, speeds=SPEEDS, jobs=jobs, mechanism=Compared()))
    assert not np.isnan(record.finished_at).any()
    assert Compared.quiet > 10
    if utilization:
        assert Compared.quiet_while_packed > 5
    else:
        assert Compared.turns > 10
