"""Gandiva's quiet slices give the plan and the memory of a full decision."""

import numpy as np
import pytest

from fairlead.core import encode_event
from fairlead.mechanisms.gandiva import Gandiva
from fairlead.mechanisms.gandiva.memory import GandivaMemory
from fairlead.mechanisms.gandiva.quiet_slices import Thresholds, quiet_slice
from fairlead.mechanisms.gandiva.servers import Servers
from fairlead.model.cluster import Cluster
from fairlead.model.events import PlanReady
from fairlead.model.job import Job
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario

QUIET_SLICE = "fairlead.mechanisms.gandiva.mechanism.quiet_slice"
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
    """Decides every slice in full as well, and counts the quiet ones."""

    quiet = 0
    quiet_while_packed = 0

    def plan(self, snap: Snapshot, memory: GandivaMemory) -> tuple[Plan, GandivaMemory]:
        quiet: list[GandivaMemory] = []

        def noted(
            snap: Snapshot, memory: GandivaMemory, servers: Servers, limits: Thresholds
        ) -> GandivaMemory | None:
            after = quiet_slice(snap, memory, servers, limits)
            quiet.extend(() if after is None else (after,))
            return after

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(QUIET_SLICE, noted)
            answer = super().plan(snap, memory)
            patch.setattr(QUIET_SLICE, lambda *_: None)
            in_full = super().plan(snap, memory)
        lines = [encode_event(PlanReady(0.0, 0, *each)) for each in (answer, in_full)]
        assert lines[0] == lines[1]
        Compared.quiet += len(quiet)
        Compared.quiet_while_packed += any(
            len(unit) > 1 for after in quiet for unit in after.units
        )
        return answer


def test_quiet_slices_equal_full_decisions() -> None:
    """Jobs come, are packed, leave and spread over servers; between changes slices are quiet."""
    jobs = [
        Job(
            id=f"j{i}",
            workload=("big", "small", "cnn")[i % 3],
            gang=(1, 2, 1, 1)[i % 4],
            total_steps=2_000 + 700 * i,
            arrival_at=150.0 * i,
            utilization=0.3,
            memory_gib=2.0,
        )
        for i in range(12)
    ]
    cluster = Cluster.of({"v100": 2, "p100": 2, "k80": 4}, per_node=2)
    record, _ = simulate(Scenario(cluster=cluster, speeds=SPEEDS, jobs=jobs, mechanism=Compared()))
    assert not np.isnan(record.finished_at).any()
    assert Compared.quiet > 10
    assert Compared.quiet_while_packed > 5
