"""Recorded runs on real devices: their costs, and the simulator's prediction of their times."""

from dataclasses import replace
from pathlib import Path

import benchmarks.physical.results as shown
import pytest
from benchmarks.physical.prediction import (
    errors_of,
    measured_costs,
    measured_lease,
    prediction_of,
)
from benchmarks.physical.record import Belief, Lease, read_record
from benchmarks.physical.scatter import scatter
from benchmarks.physical.scenario import SPEEDUP_TENANTS, planned_jobs, tenants_of

from fairlead.files import read_speeds
from fairlead.sim.physics.effects import TransitionCosts

FOLDER = Path(shown.__file__).with_name("runs")
RUNS = sorted(FOLDER.rglob("*.json"))
UNPREDICTED = {FOLDER / f"short/{name}.json" for name in ("fairlead", "gandiva-fair")}
"""runs of policies that decide otherwise today, or by measured speeds that are not recorded"""
PUBLISHED_ERROR = 0.08
"""error of simulations that Gavel reports"""
MIN_GAIN = 1.25
"""average completion without regard to speeds, relative to that with"""


def lease(began: str, start_s: float, *, first: bool = False) -> Lease:
    return Lease(
        accelerator="a",
        is_first=first,
        began=began,
        left="offload",
        held_s=20.0 + start_s,
        steps=190.0,
        start_s=start_s,
        end_s=1.0,
    )


LEASES = [lease("start", 9.0, first=True), lease("resume", 0.5), lease("start", 7.0)]


def test_costs_are_means_of_their_kind_of_start() -> None:
    expected = TransitionCosts(preload_s=9.0, resume_s=0.5, move_s=6.5, leave_s=1.0)
    assert measured_costs(LEASES) == expected
    without_resumes = TransitionCosts(preload_s=9.0, resume_s=0.0, move_s=7.0, leave_s=1.0)
    assert measured_costs([LEASES[0], lease("start", 7.0)]) == without_resumes
    handed = measured_costs([*LEASES, lease("hand-over", 2.0), lease("hand-over", 4.0)])
    assert handed == replace(expected, hand_over_s=3.0)


def test_a_lease_without_steps_has_no_speed() -> None:
    assert measured_lease(LEASES[0]).steps_per_s == pytest.approx(10.0)
    assert measured_lease(LEASES[0]).kind == "first"
    assert measured_lease(replace(LEASES[2], steps=0.0)).steps_per_s is None
    assert measured_lease(LEASES[2]).kind == "move"


def test_recorded_beliefs_decide_where_simulated_jobs_run() -> None:
    record = read_record(FOLDER / "max-min.json")
    # Believed to be the same everywhere, no job has a reason to prefer a device.
    speeds = read_speeds(record.speeds)
    slow = [
        Belief(at_s=0.0, workload=name, accelerator=accelerator, steps_per_s=1.0)
        for name in speeds.workloads
        for accelerator in dict.fromkeys(record.devices)
    ]
    without, misled = (prediction_of(replace(record, beliefs=beliefs)) for beliefs in ([], slow))
    assert misled.mean() > without.mean()


@pytest.mark.parametrize("path", RUNS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_the_simulator_predicts_recorded_runs(path: Path, tmp_path: Path) -> None:
    record = read_record(path)
    assert len(record.jobs) >= 24
    errors = errors_of(record, prediction_of(record))
    within = max(errors.average_completion, errors.makespan) <= shown.MAX_ERROR
    if path.parent == FOLDER:
        assert within
    elif path not in UNPREDICTED:
        assert max(errors.average_completion, errors.makespan) < PUBLISHED_ERROR
    assert shown.show(record) == (0 if within else 1)
    record.write(tmp_path / "copy.json")
    assert read_record(tmp_path / "copy.json") == record


@pytest.mark.parametrize("name", ["max-min", "fairlead"])
def test_jobs_complete_earlier_by_a_quarter_if_speeds_count(name: str) -> None:
    counted, ignored = (
        read_record(FOLDER / f"{each}.json") for each in (name, "max-min-agnostic")
    )
    jobs = [[(job.workload, job.steps) for job in run.jobs] for run in (counted, ignored)]
    assert jobs[0] == jobs[1]
    assert ignored.average_completion_s / counted.average_completion_s >= MIN_GAIN


def test_tenants_by_speed_up_are_those_of_the_recorded_run() -> None:
    record = read_record(FOLDER / "short/gandiva-fair.json")
    jobs = planned_jobs(
        read_speeds(record.speeds),
        tuple(dict.fromkeys(record.devices)),
        count=len(record.jobs),
        alone_s=(12.0, 20.0),
        interarrival_s=4.0,
        seed=1,
        by_speedup=True,
    )
    recorded = [(job.workload, job.tenant, job.steps) for job in record.jobs]
    assert [(job.workload, job.tenant, job.steps) for job in jobs] == recorded
    assert tenants_of({job.tenant for job in jobs}) == SPEEDUP_TENANTS


def test_the_plot_has_a_dot_for_each_job_and_name() -> None:
    plot = scatter({"max-min": [(10.0, 11.0), (200.0, 190.0)], "a<b": [(5.0, 5.0)]})
    assert plot.count("<circle") == 3 + 2
    assert "a&lt;b" in plot
