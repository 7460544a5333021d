"""Trials of accelerators that may be fast: tried where that is worth more than it costs."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.core import Scheduler, load_state, save_state, state_bytes
from fairlead.core.queries import Queries
from fairlead.files import parse_cluster
from fairlead.files.speeds.prior import prior_speeds
from fairlead.mechanisms.base import FluidMechanism
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.events import Event, PlanDue, SpeedMeasured
from fairlead.model.job import Job
from fairlead.model.speeds.key import SpeedKey
from fairlead.model.speeds.planned import MAX_FACTOR, MAX_TRIALS, MOVE_ROUNDS, Trials, break_even
from fairlead.model.speeds.table import SpeedTable
from fairlead.sim.run_log import replay_file
from fairlead.sim.runs import run_scenario
from fairlead.sim.scenario import Learning, Scenario

ROUND_S = 60.0
ON_V100 = SpeedKey("x", 1, "v100")
TRUTH = SpeedTable({ON_V100: 10.0, ON_V100._replace(accelerator="p100"): 20.0})
"""by the data sheets, the V100 is the faster one"""


class _Outcome(NamedTuple):
    scheduler: Scheduler[Any]
    rounds: float
    """length of the run"""
    events: list[Event]
    scenario: Scenario

    @property
    def measured(self) -> list[SpeedMeasured]:
        return [event for event in self.events if isinstance(event, SpeedMeasured)]

    def new_scheduler(self) -> Scheduler[Any]:
        scenario = self.scenario
        assert scenario.believed is not None
        assert not isinstance(scenario.mechanism, FluidMechanism)
        return Scheduler(scenario.cluster, scenario.believed, scenario.mechanism)


def test_a_trial_breaks_even_where_gain_and_cost_are_equal() -> None:
    doubt, rounds = 0.4, 8
    known = break_even(doubt, rounds)
    assert 1.0 < known < MAX_FACTOR
    speed = np.exp(doubt * np.linspace(-8.0, 8.0, 100_001))
    density = np.exp(-0.5 * np.linspace(-8.0, 8.0, 100_001) ** 2)
    density /= density.sum()
    gain = (rounds - 1) * float(density @ np.maximum(speed - known, 0.0))
    cost = known * (1.0 + MOVE_ROUNDS) - float(density @ speed)
    assert gain == pytest.approx(cost, rel=1e-4)


def test_trials_are_worth_more_with_more_doubt_and_more_work_left() -> None:
    by_rounds = [break_even(0.4, rounds) for rounds in (1, 2, 8, 32, 1024)]
    by_doubt = [break_even(doubt, 8) for doubt in (0.0, 0.1, 0.3, 0.5, 3.0)]
    for factors in (by_rounds, by_doubt):
        assert factors == sorted(factors)
        assert (factors[0], factors[-1]) == (1.0, MAX_FACTOR)


def _run(total_steps: float, trials: Trials | None, *, learns: bool = True) -> _Outcome:
    """Simulate one job on a V100 and a P100; unless speeds are learnt, the V100's is known."""
    events: list[Event] = []
    scenario = Scenario(
        cluster=parse_cluster("v100=1,p100=1"),
        speeds=TRUTH,
        jobs=[Job(id="j", workload="x", total_steps=total_steps)],
        mechanism=create_mechanism("max-min", None, ROUND_S),
        believed=replace(
            prior_speeds("guess"),
            steps_per_s={} if learns else {ON_V100: 10.0},
            trials=trials,
        ),
        learning=Learning() if learns else None,
        on_event=events.append,
    )
    result, _, scheduler = run_scenario("max-min", scenario)
    assert scheduler is not None
    assert result.makespan_s is not None
    return _Outcome(scheduler, result.makespan_s / ROUND_S, events, scenario)


def test_a_long_job_finds_the_faster_accelerator_and_a_short_one_tries_nothing() -> None:
    long, short = 100 * 10.0 * ROUND_S, 1.5 * 10.0 * ROUND_S
    assert _run(long, None).rounds == pytest.approx(100.0)
    # One round on the V100, which the data sheets prefer, then all others on the P100.
    explored = _run(long, Trials())
    assert explored.rounds == pytest.approx(50.5)
    assert [event.accelerator for event in explored.measured] == ["v100", "p100"]
    assert _run(short, Trials()).rounds == _run(short, None).rounds == pytest.approx(1.5)


def test_an_accelerator_that_gives_no_measurement_is_tried_for_three_rounds() -> None:
    tried = _run(100 * 10.0 * ROUND_S, Trials(), learns=False)
    assert tried.scheduler.trials.vain == {ON_V100._replace(accelerator="p100"): MAX_TRIALS}
    # Each of these rounds has done the work of two on the V100.
    assert tried.rounds == pytest.approx(100.0 - MAX_TRIALS)


def test_the_state_of_trials_is_saved_and_replayed() -> None:
    tried = _run(100 * 10.0 * ROUND_S, Trials(), learns=False)
    plans = [i for i, event in enumerate(tried.events) if isinstance(event, PlanDue)]
    before, after = tried.events[: plans[2] + 1], tried.events[plans[2] + 1 :]
    stopped, resumed = tried.new_scheduler(), tried.new_scheduler()
    for event in before:
        stopped.handle(event)
    assert stopped.trials.vain
    load_state(resumed, save_state(stopped))
    assert resumed.trials == stopped.trials
    assert resumed.beliefs.speed("x", ["p100"]) == stopped.beliefs.speed("x", ["p100"])
    for event in after:
        resumed.handle(event)
    assert state_bytes(resumed) == state_bytes(tried.scheduler)


def test_the_log_of_a_run_with_trials_replays(tmp_path: Path) -> None:
    log, trace = tmp_path / "run.jsonl", tmp_path / "trace.csv"
    trace.write_text("job_id,arrival_s,workload,gang,total_steps\na,0,GRU,1,40000\n")
    options = ["--cluster", "v100=1,p40=1", "--trace", str(trace), "--speeds", "guess"]
    options += ["--truth", "gandiva-fair", "--explore", "--log", str(log), "--json"]
    done = CliRunner().invoke(app, ["simulate", *options])
    assert done.exit_code == 0, done.stderr
    assert replay_file(log).same
    # The same events lead elsewhere without trials, which the header therefore names.
    log.write_text(log.read_text().replace('"explores":true', '"explores":false', 1))
    assert not replay_file(log).same


def test_queries_name_the_speed_that_decisions_use() -> None:
    tried = _run(100 * 10.0 * ROUND_S, Trials(), learns=False)
    scheduler = tried.new_scheduler()
    for event in tried.events[: [type(event) for event in tried.events].index(PlanDue) + 1]:
        scheduler.handle(event)
    known, assumed = Queries(scheduler).job_speeds(0)
    assert known.planned_steps_per_s is None
    assert assumed.planned_steps_per_s is not None
    assert assumed.steps_per_s < known.steps_per_s < assumed.planned_steps_per_s
