"""Simulations in which the scheduler learns the speeds: ``fairlead simulate --truth``."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.files import read_speeds, write_speeds
from fairlead.model.errors import UsageError
from fairlead.notebook import simulate
from fairlead.sim.run_log import replay_file
from fairlead.sim.runs import SimulationOptions, scenario_of

TRUTH = "gandiva-fair"


FIRST_JOBS = (0, 60)


@pytest.fixture(scope="module")
def oracle() -> float:
    return average_jct_s(speeds=TRUTH)


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
    done = CliRunner().invoke(app, ["simulate", *known, "--log", str(log), "--json"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["avg_jct_s"] < 1.08 * oracle
    assert log.read_text().count('"SpeedMeasured"') > 20
    assert replay_file(log).same


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speeds": "guess"}, "--truth: missing: jobs cannot run at --speeds guess"),
        ({"noise": 0.1}, "--noise: nothing is measured without --truth"),
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
