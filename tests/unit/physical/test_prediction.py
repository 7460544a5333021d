"""Recorded runs on real devices: their costs, and the simulator's prediction of their times."""

from pathlib import Path

import benchmarks.physical.results as shown
import pytest
from benchmarks.physical.prediction import errors_of, measured_costs, prediction_of
from benchmarks.physical.record import Lease, read_record
from benchmarks.physical.scatter import scatter
from benchmarks.physical.scenario import SPEEDUP_TENANTS, planned_jobs, tenants_of

from fairlead.files import read_speeds
from fairlead.sim.physics.effects import TransitionCosts

RUNS = sorted(Path(shown.__file__).with_name("runs").glob("*.json"))
CHANGED_SINCE = {"fairlead"}
"""runs under policies that decide otherwise today"""
PUBLISHED_ERROR = 0.08
"""error of simulations that Gavel reports"""


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


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_the_simulator_predicts_recorded_runs(path: Path, tmp_path: Path) -> None:
    record = read_record(path)
    assert len(record.jobs) >= 24
    errors = errors_of(record, prediction_of(record))
    if path.stem not in CHANGED_SINCE:
        assert max(errors.average_completion, errors.makespan) < PUBLISHED_ERROR
    within = max(errors.average_completion, errors.makespan) <= shown.MAX_ERROR
    assert shown.show(record) == (0 if within else 1)
    record.write(tmp_path / "copy.json")
    assert read_record(tmp_path / "copy.json") == record


def test_tenants_by_speed_up_are_those_of_the_recorded_run() -> None:
    (record,) = (read_record(path) for path in RUNS if path.stem == "gandiva-fair")
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
