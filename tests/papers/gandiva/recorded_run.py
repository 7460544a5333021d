"""A simulated run of Gandiva with its leases recorded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairlead.mechanisms.gandiva import Gandiva
from fairlead.mechanisms.gandiva.memory import GandivaMemory
from fairlead.model.cluster import Cluster
from fairlead.model.events import Event, PlanReady
from fairlead.model.job import Job
from fairlead.model.lease import Placement, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.physics.gandiva import gandiva_physics
from fairlead.sim.scenario import Scenario

P40 = {
    "VAE": 81.8,
    "SuperResolution": 40.3,
    "RHN": 10.1,
    "SCRNN": 16.7,
    "MI-LSTM": 22.2,
    "LSTM": 63.8,
    "ResNet-50": 10.3,
    "ResNext-50": 83.6,
}
"""Table 1: mini-batches per second of one job alone on a P40"""
MINUTE = 60.0


def flat(*workloads: str, accelerators: Sequence[str] = ("p100",)) -> SpeedTable:
    """Return speeds of 10 steps per second for each device and any workload."""
    return SpeedTable(
        {
            SpeedKey(w, g, k): 10.0 * g
            for w in workloads
            for g in (1, 2, 4, 8)
            for k in accelerators
        }
    )


@dataclass
class Run:
    """A simulation under Gandiva, with what it kept in mind at every plan."""

    jobs: Sequence[Job]
    speeds: SpeedTable
    cluster: Cluster
    mechanism: Any = field(default_factory=Gandiva)
    more: Mapping[str, Any] = field(default_factory=dict)
    plans: list[PlanReady] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.record, _ = simulate(
            Scenario(
                cluster=self.cluster,
                speeds=self.speeds,
                jobs=self.jobs,
                mechanism=self.mechanism,
                intervals=True,
                on_event=self._note,
                **{"physics": gandiva_physics(), **self.more},
            )
        )

    def _note(self, event: Event) -> None:
        if isinstance(event, PlanReady):
            self.plans.append(event)

    def memories(self) -> Iterable[tuple[float, GandivaMemory]]:
        for ready in self.plans:
            assert isinstance(ready.memory, GandivaMemory)
            yield ready.at, ready.memory

    def memory(self, at: float) -> GandivaMemory:
        (repeated,) = (memory for when, memory in self.memories() if when == at)
        return repeated

    def units(self, at: float) -> set[tuple[int, ...]]:
        """Return the jobs of each unit, as decided at an instant."""
        return {tuple(sorted(unit)) for unit in self.memory(at).units}

    def homes(self, at: float) -> dict[str, dict[int, int]]:
        """Return job → servers with devices of it, as decided at an instant."""
        memory = self.memory(at)
        return {
            self.jobs[job].id: dict(home)
            for unit, home in zip(memory.units, memory.homes, strict=True)
            for job in unit
        }

    def leases(self, job: str) -> list[tuple[float, float, int]]:
        """Return start, end and size of every lease of a job, in order."""
        assert self.record.intervals is not None
        number, _, size, start, end = self.record.intervals.columns()
        mine = np.flatnonzero(number == [j.id for j in self.jobs].index(job))
        rows = zip(start[mine].tolist(), end[mine].tolist(), size[mine].tolist(), strict=True)
        return sorted(rows)


@dataclass(frozen=True)
class Begins(Gandiva):
    """Gandiva that finds jobs running where a test has put them."""

    homes: tuple[tuple[int, ...], ...] = ()

    def plan(self, snap: Snapshot, memory: GandivaMemory) -> tuple[Plan, GandivaMemory]:
        if snap.starts_at > 0:
            return super().plan(snap, memory)
        start = [Placement(job, 0, on) for job, on in enumerate(self.homes)]
        none = np.zeros(0, dtype=np.int64)
        return Plan(none, Placements.of(start), self.round_s, self.round_s), memory
