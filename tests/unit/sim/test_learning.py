"""Simulations in which the scheduler learns the speeds: ``fairlead simulate --truth``."""

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.data import DEFAULT_CLUSTER
from fairlead.files import parse_cluster, read_speeds, write_speeds
from fairlead.files.speeds.prior import prior_speeds
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.errors import UsageError
from fairlead.model.events import Event, JobsMeasured, SpeedMeasured
from fairlead.model.job import Job
from fairlead.model.speeds.key import SpeedKey, plain_workload
from fairlead.model.speeds.table import SpeedTable
from fairlead.notebook import simulate
from fairlead.sim.generate import default_trace
from fairlead.sim.metrics import Result
from fairlead.sim.run_log import replay_file
from fairlead.sim.runs import SimulationOptions, run_scenario, scenario_of
from fairlead.sim.scenario import Learning, Scenario

TRUTH = "gandiva-fair"


FIRST_JOBS = (0, 60)


@pytest.fixture(scope="module")
def honest() -> Result:
    """Return the figures of a run that knows all speeds from the start."""
    return simulate(window=FIRST_JOBS, speeds=TRUTH).result


@pytest.fixture(scope="module")
def oracle(honest: Result) -> float:
    assert honest.avg_jct_s is not None
    return honest.avg_jct_s


def average_jct_s(**options: Any) -> float:
    average = simulate(window=FIRST_JOBS, **options).result.avg_jct_s
    assert average is not None
    return average


def test_a_scheduler_that_knows_nothing_learns_the_speeds(oracle: float) -> None:
    assert average_jct_s(speeds="none", truth=TRUTH) < 1.08 * oracle


def test_a_scheduler_with_data_sheets_learns_them_from_noise_and_its_log_replays(
    tmp_path: Path, oracle: float
) -> None:
    log = tmp_path / "run.jsonl"
    known = ["--speeds", "guess", "--truth", TRUTH, "--noise", "0.1", "--window", "0:60"]
    known += ["--plan-on", "0.6"]
    done = CliRunner().invoke(app, ["simulate", *known, "--log", str(log), "--json"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["avg_jct_s"] < 1.08 * oracle
    assert log.read_text().count('"SpeedMeasured"') > 20
    assert replay_file(log).same


def test_the_speeds_of_ten_unknown_jobs_are_learnt_within_three_rounds() -> None:
    rates = {"a": (40.0, 10.0), "b": (30.0, 20.0), "c": (20.0, 12.0)}
    truth = SpeedTable(
        {
            SpeedKey(name, 1, accelerator): speed
            for name, speeds in rates.items()
            for accelerator, speed in zip(("v100", "k80"), speeds, strict=True)
        }
    )
    mechanism = create_mechanism("max-min", None, 60.0)
    measured: dict[SpeedKey, float] = {}

    def note(event: Event) -> None:
        if isinstance(event, SpeedMeasured) and event.at <= 3 * 60.0:
            key = SpeedKey(plain_workload(event.workload), event.gang, event.accelerator)
            measured[key] = event.steps_per_s

    jobs = [Job(id=f"j{i}", workload=name, total_steps=1e4) for i, name in enumerate("abcabcabca")]
    run_scenario(
        "max-min",
        Scenario(
            cluster=parse_cluster("v100=5,k80=5"),
            speeds=truth,
            jobs=jobs,
            mechanism=mechanism,
            believed=prior_speeds("guess"),
            learning=Learning(noise=0.02),
            on_event=note,
        ),
    )
    assert measured == {
        key: pytest.approx(speed, rel=0.1) for key, speed in truth.steps_per_s.items()
    }


def test_random_pairs_need_no_table_of_pairs() -> None:
    """``gavel-gandiva`` leaves jobs alone of whose pairs nothing is known."""
    scenario = Scenario(
        cluster=parse_cluster("v100=1"),
        speeds=SpeedTable({SpeedKey("w", 1, "v100"): 1.0}),
        jobs=[Job(id=f"j{i}", workload="w", total_steps=600.0) for i in range(3)],
        mechanism=create_mechanism("gavel-gandiva", None, None),
        believed=prior_speeds("guess"),
        learning=Learning(),
    )
    result, _, _ = run_scenario("gavel-gandiva", scenario)
    assert result.makespan_s == pytest.approx(1800.0, rel=0.5)
    assert result.unfinished == 0


def test_a_mechanism_that_reads_measurements_reads_them_with_their_noise() -> None:
    ratios: list[float] = []

    def note(event: Event) -> None:
        if isinstance(event, JobsMeasured):
            ratios.extend(event.steps_per_s.tolist())

    truth = SpeedTable({SpeedKey("w", 1, "v100"): 1.0})
    scenario = Scenario(
        cluster=parse_cluster("v100=2"),
        speeds=truth,
        jobs=[Job(id=f"j{i}", workload="w", total_steps=6000.0) for i in range(3)],
        mechanism=create_mechanism("gandiva", None, None),
        believed=prior_speeds("guess"),
        on_event=note,
    )
    run_scenario("gandiva", replace(scenario, learning=Learning()))
    assert set(ratios) == {1.0}
    ratios.clear()
    run_scenario("gandiva", replace(scenario, learning=Learning(noise=0.1)))
    assert 0.08 < stdev(map(math.log, ratios)) < 0.12


def test_a_pair_that_runs_slower_than_estimated_is_measured_and_undone() -> None:
    def pair(keeps: float) -> SpeedTable:
        beside = {SpeedKey(a, 1, "v100", partner=b): keeps for a, b in ("xy", "yx")}
        return SpeedTable({SpeedKey(name, 1, "v100"): 1.0 for name in "xy"} | beside)

    jobs = [Job(id=name, workload=name, total_steps=3600.0) for name in "xy"]
    makespan_s = []
    for learning in (None, Learning()):
        scenario = Scenario(
            cluster=parse_cluster("v100=1"),
            speeds=pair(0.2),
            jobs=jobs,
            mechanism=create_mechanism("max-min:packed", None, 60.0),
            believed=pair(0.9),
            learning=learning,
        )
        result, _, scheduler = run_scenario("max-min:packed", scenario)
        makespan_s.append(result.makespan_s)
    assert scheduler is not None
    assert sorted(scheduler.measured_speeds.pairs.values()) == [(0.2, 60.0), (0.2, 60.0)]
    # Packed to the end, both take five times as long as alone; apart, they take turns.
    assert makespan_s == pytest.approx([5 * 3600.0, 2 * 3600.0], rel=0.05)


def test_measurement_overrules_a_table_that_inflates_speeds(tmp_path: Path, oracle: float) -> None:
    """Believed to the end, this table costs three quarters of the average completion time."""
    truth = read_speeds(TRUTH)
    inflated = {
        key: speed * (10.0 if key.accelerator == "k80" else 1.0)
        for key, speed in truth.steps_per_s.items()
    }
    declared = tmp_path / "declared.csv"
    write_speeds(replace(truth, steps_per_s=inflated), declared)
    assert average_jct_s(speeds=str(declared), truth=TRUTH) < 1.05 * oracle


def test_inflated_speeds_gain_their_jobs_nothing_once_they_are_measured(
    tmp_path: Path, honest: Result
) -> None:
    """Believed to the end, this lie changes the completion times of its jobs by 12 %."""
    truth, liar = read_speeds(TRUTH), "SuperResolution"
    declared = {
        key: speed * (2.0 if (key.workload, key.accelerator) == (liar, "v100") else 1.0)
        for key, speed in truth.steps_per_s.items()
    }
    table = tmp_path / "declared.csv"
    write_speeds(replace(truth, steps_per_s=declared), table)
    lied = _completion_s(simulate(window=FIRST_JOBS, speeds=str(table), truth=TRUTH).result, liar)
    assert lied == pytest.approx(_completion_s(honest, liar), rel=0.02)


def test_a_tenant_that_declares_twice_the_speed_gains_nothing_once_it_is_measured(
    honest: Result,
) -> None:
    """Believed to the end, this lie costs the tenant 13 % of its completion times."""
    truth, liar = read_speeds(TRUTH), "SuperResolution"
    options = SimulationOptions(
        cluster=DEFAULT_CLUSTER, policy="max-min", speeds="guess", truth=TRUTH, window="0:60"
    )
    scenario = scenario_of(options)

    def with_lie(job: Job) -> Job:
        true = {name: truth.speed(liar, [name]) for name in scenario.cluster.accelerators}
        return replace(job, tenant="liar", declared_speeds={**true, "v100": 2.0 * true["v100"]})

    jobs = tuple(with_lie(job) if job.workload == liar else job for job in scenario.jobs)
    lied, _, scheduler = run_scenario("max-min", replace(scenario, jobs=jobs))
    assert _completion_s(lied, liar) == pytest.approx(_completion_s(honest, liar), rel=0.03)
    assert scheduler is not None
    (speed,) = scheduler.beliefs.row_of(with_lie(default_trace()[0]), ("v100",))
    assert speed == pytest.approx(truth.speed(liar, ["v100"]), rel=0.05)


def _completion_s(result: Result, workload: str) -> float:
    """Return the average completion time of the jobs of a workload."""
    own = {job.id for job in default_trace() if job.workload == workload}
    return fmean(job.jct_s for job in result.jobs if job.id in own and job.jct_s is not None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speeds": "guess"}, "--truth: missing: jobs cannot run at --speeds guess"),
        ({"noise": 0.1}, "--noise: nothing is measured without --truth"),
        ({"plan_on": 0.8}, "--plan-on: nothing is estimated without --truth"),
        (
            {"plan_on": 0.8, "speeds": "none", "truth": TRUTH},
            "--plan-on: --speeds none states no doubt",
        ),
        ({"explore": True}, "--explore: nothing is measured without --truth"),
        (
            {"explore": True, "plan_on": 0.8, "speeds": "guess", "truth": TRUTH},
            "--explore: weighs trials by the doubt of estimates: expected .* no --plan-on",
        ),
        ({"truth": TRUTH, "believed": TRUTH}, "--believed: not with --truth"),
        ({"truth": TRUTH, "mechanism": "ideal"}, "--truth: not supported by fluid mechanisms"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    options: dict[str, Any], message: str
) -> None:
    values = {"cluster": "v100=4,k80=4", "policy": "max-min", "speeds": TRUTH, **options}
    with pytest.raises(UsageError, match=message):
        scenario_of(SimulationOptions(**values))
