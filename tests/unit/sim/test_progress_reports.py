"""Simulations report the progress of jobs only where decisions depend on it."""

import random
from collections.abc import Collection, Sequence
from dataclasses import replace

from fairlead.files import read_speeds
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.events import Event, Progress
from fairlead.model.job import Job
from fairlead.sim.driver import simulate
from fairlead.sim.generate import Recipe, generate
from fairlead.sim.record import Record
from fairlead.sim.scenario import Reviewer, Scenario

SPEEDS = read_speeds("gandiva-fair")
PRICED = {"v100": 2.48, "p100": 1.46, "k80": 0.45}
CLUSTER = Cluster.of(
    dict.fromkeys(PRICED, 2),
    details={name: Accelerator(name, usd_per_hour=usd) for name, usd in PRICED.items()},
)
RECIPE = Recipe(kind="continuous-single", jobs=12, rate=20.0, duration_factor=0.02)
JOBS = generate(RECIPE, SPEEDS, random.Random(5), CLUSTER)


class NoChanges:
    """A reviewer that could change jobs, and changes none."""

    period_s = 1e9
    held: Collection[str] = ()

    def review(self, at: float, steps: FloatArray) -> tuple[Event, ...]:
        del at, steps
        return ()


def _run(jobs: Sequence[Job], reviewer: Reviewer | None = None) -> tuple[Record, int]:
    events: list[Event] = []
    scenario = Scenario(
        cluster=CLUSTER,
        speeds=SPEEDS,
        jobs=jobs,
        mechanism=create_mechanism("cost-slo"),
        reviewer=reviewer,
        on_event=events.append,
    )
    record = simulate(scenario)[0]
    return record, sum(isinstance(event, Progress) for event in events)


def test_without_deadlines_cost_slo_decides_the_same_without_reports() -> None:
    record, reports = _run(JOBS)
    reviewed, more_reports = _run(JOBS, NoChanges())
    assert reports == 0 < more_reports
    assert record.finished_at.tolist() == reviewed.finished_at.tolist()
    assert record.rounds == reviewed.rounds


def test_one_deadline_makes_progress_known() -> None:
    assert _run([replace(JOBS[0], deadline_s=1e6), *JOBS[1:]])[1] > 0
