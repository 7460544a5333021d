"""Simulations against the original Gavel's: its speeds, traces, clusters, no restore cost."""

import json
import random
from typing import Any

import numpy as np
import pytest
from tests.support.shared_data import SHARED, needs_shared

from fairlead.files import read_cluster, read_speeds, read_trace
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.speeds.table import SpeedTable
from fairlead.sim.driver import simulate
from fairlead.sim.generate import Recipe, generate
from fairlead.sim.record import Record
from fairlead.sim.scenario import Scenario

pytestmark = [needs_shared, pytest.mark.reference]

CONTINUOUS = "cont_single_300_lam1800_seed0.csv.gz", "v100=12,p100=12,k80=12"
STATIC = "static_single_100_seed0.csv.gz", "v100=6,p100=6,k80=6"


@pytest.fixture(scope="module")
def speeds() -> SpeedTable:
    assert SHARED is not None
    return read_speeds(SHARED / "data/gavel/simulation_throughputs.json.gz")


def _gavel(trace: str, policy: str) -> dict[str, Any]:
    assert SHARED is not None
    runs: list[dict[str, Any]] = json.loads(
        (SHARED / "reference/gavel/simulations.json").read_text()
    )
    wanted = {
        "trace": trace,
        "policy": policy,
        "solver": "ECOS",
        "global_queue": False,
        "seed": 0,
        "min_time_between_allocation_resets_s": 1920,
    }
    return next(run for run in runs if all(run[k] == v for k, v in wanted.items()))


def _run(
    case: tuple[str, str],
    speeds: SpeedTable,
    policy: str,
    mechanism: str | None = None,
    *,
    restore_cost_s: float = 0.0,
) -> tuple[float, float, Record]:
    assert SHARED is not None
    jobs = read_trace(SHARED / "reference/gavel" / case[0]).jobs
    record, _ = simulate(
        Scenario(
            cluster=read_cluster(case[1]),
            speeds=speeds,
            jobs=jobs,
            mechanism=create_mechanism(policy, mechanism, 360.0),
            restore_cost_s=restore_cost_s,
        )
    )
    jct = record.finished_at - np.array([job.arrival_at for job in jobs])
    return float(jct.mean()), float(record.finished_at.max()), record


@pytest.mark.parametrize(
    ("policy", "gavels", "bar"),
    [
        ("max-min", "max_min_fairness_perf", 1.02),
        ("max-min:agnostic", "max_min_fairness", 1.02),
        ("fifo", "fifo_perf", 1.05),
    ],
)
def test_continuous_trace_completes_as_fast_as_gavel(
    speeds: SpeedTable, policy: str, gavels: str, bar: float
) -> None:
    average, _, _ = _run(CONTINUOUS, speeds, policy)
    assert average <= bar * _gavel(CONTINUOUS[0], gavels)["avg_jct_s"]


def test_static_trace_has_gavels_makespan_under_makespan_and_jobs_end_in_half_its_time(
    speeds: SpeedTable,
) -> None:
    """Measured: the makespan of the fluid ideal, average completion 30 h; Gavel's 67 h."""
    average, makespan, _ = _run(STATIC, speeds, "makespan")
    gavel = _gavel(STATIC[0], "min_total_duration_perf")
    assert makespan <= 1.02 * gavel["makespan_s"]
    assert average <= 0.5 * gavel["avg_jct_s"]


def test_rounds_that_know_the_cost_of_restarts_lose_at_most_2_percent_by_them(
    speeds: SpeedTable,
) -> None:
    """Measured: 0.5 % and 962 preemptions; 6.6 % and 14,275 where the cost is not known."""
    free, _, _ = _run(CONTINUOUS, speeds, "max-min")
    mechanism = "shares:restart-s=60"
    costly, _, record = _run(CONTINUOUS, speeds, "max-min", mechanism, restore_cost_s=60.0)
    assert costly <= 1.02 * free
    assert record.preemptions.sum() <= 2000


def test_static_trace_completes_as_fast_as_gavel_under_max_min(speeds: SpeedTable) -> None:
    average, _, _ = _run(STATIC, speeds, "max-min")
    assert average <= 1.02 * _gavel(STATIC[0], "max_min_fairness_perf")["avg_jct_s"]


@pytest.mark.parametrize("case", [CONTINUOUS, STATIC], ids=["continuous", "static"])
def test_rounds_complete_jobs_within_3_percent_of_the_ideal(
    speeds: SpeedTable, case: tuple[str, str]
) -> None:
    rounds, _, _ = _run(case, speeds, "max-min")
    ideal, _, _ = _run(case, speeds, "max-min", "ideal")
    assert rounds == pytest.approx(ideal, rel=0.03)


def test_fairlead_is_earlier_than_max_min_with_a_tenth_of_its_preemptions_and_no_late_job(
    speeds: SpeedTable,
) -> None:
    """Measured: average 0.945, median 0.85, 481 preemptions instead of 12,765."""
    average, _, mine = _run(CONTINUOUS, speeds, "fairlead")
    other_average, _, other = _run(CONTINUOUS, speeds, "max-min")
    _, _, isolated = _run(CONTINUOUS, speeds, "isolated", "ideal")
    arrival = np.array([job.arrival_at for job in mine.jobs])
    assert average <= 0.95 * other_average
    assert np.median(mine.finished_at - arrival) <= 0.9 * np.median(other.finished_at - arrival)
    assert mine.preemptions.sum() <= 0.1 * other.preemptions.sum()
    assert (mine.finished_at <= isolated.finished_at + 1e-6).all()


def test_rounds_with_gangs_end_with_the_ideal_makespan(speeds: SpeedTable) -> None:
    """Measured: 1.0002; 1.066 if jobs that need all of the time lose rounds to gangs."""
    cluster = read_cluster("v100=8,p100=16,k80=24")
    recipe = Recipe(kind="static-multiple", jobs=100)
    jobs = generate(recipe, speeds, random.Random(1), cluster)
    ends = [
        simulate(Scenario(cluster=cluster, speeds=speeds, jobs=jobs, mechanism=mechanism))[
            0
        ].finished_at.max()
        for mechanism in (
            create_mechanism("makespan", None, 360.0),
            create_mechanism("makespan", "ideal"),
        )
    ]
    assert ends[0] <= 1.02 * ends[1]


def test_papers_mechanism_is_within_5_percent_of_gavels_own_figure(speeds: SpeedTable) -> None:
    average, _, _ = _run(CONTINUOUS, speeds, "max-min", "gavel:min-interval-s=1920")
    gavels = _gavel(CONTINUOUS[0], "max_min_fairness_perf")["avg_jct_s"]
    assert average == pytest.approx(gavels, rel=0.05)
