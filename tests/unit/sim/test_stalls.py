"""A simulation in which jobs run and none makes steps ends with one error."""

import re
import sys
from dataclasses import replace

import pytest

from fairlead.cli.main import app
from fairlead.cli.shared.errors import run
from fairlead.files import read_speeds
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.events import NodeEvent, NodeLost, NodeReturned
from fairlead.model.job import Job
from fairlead.sim.cluster import stalls
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario


def _scenario(jobs: int, mechanism: str, restore_cost_s: float) -> Scenario:
    return Scenario(
        cluster=Cluster.of({"v100": 2}, per_node=2),
        speeds=read_speeds("gandiva-fair"),
        jobs=[Job(id=f"j{i}", tenant="a", workload="VAE", total_steps=9e6) for i in range(jobs)],
        mechanism=create_mechanism(mechanism),
        restore_cost_s=restore_cost_s,
    )


@pytest.mark.parametrize("mechanism", ["gandiva", "gandiva-fair"])
def test_restarts_as_long_as_turns_end_the_simulation(mechanism: str) -> None:
    with pytest.raises(InputError, match="restart costs: no job made a step from"):
        simulate(_scenario(5, mechanism, 60.0))


@pytest.mark.parametrize("mechanism", ["gandiva", "gandiva-fair"])
def test_restarts_far_longer_than_turns_are_not_awaited(mechanism: str) -> None:
    with pytest.raises(InputError, match="restart costs: no job made a step from") as caught:
        simulate(_scenario(5, mechanism, 5e6))
    until = re.search(r" to ([\d,]+) s, although \d+ run", caught.value.problem)
    assert until is not None
    assert float(until[1].replace(",", "")) < 2.5e6
    assert "--restore-cost" in caught.value.fix


def test_copies_that_only_restart_end_the_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "_MAX_STALLED_ROUNDS", 100)
    apart = Cluster.of({"v100": 1, "k80": 1}, per_node=1)
    with pytest.raises(InputError, match="restart costs: no job made a step from"):
        simulate(replace(_scenario(3, "hadare", 1000.0), cluster=apart))


def test_restarts_shorter_than_turns_let_all_jobs_finish() -> None:
    record, _ = simulate(_scenario(5, "gandiva-fair", 59.0))
    assert (record.finished_at > 0).all()


def test_a_restart_may_take_thousands_of_rounds_where_jobs_keep_their_devices() -> None:
    scenario = _scenario(2, "gandiva-fair", 150_000.0)
    lost = scenario.cluster.nodes[0].id
    record, _ = simulate(
        replace(scenario, node_events=[NodeLost(3_003.0, lost), NodeReturned(3_603.0, lost)])
    )
    assert (record.finished_at > 150_000.0).all()


@pytest.mark.parametrize("restore_cost_s", [59_999.0, 60_000.0, 60_060.0])
def test_a_restart_that_ends_with_a_check_is_no_stall(restore_cost_s: float) -> None:
    scenario = _scenario(2, "gandiva", restore_cost_s)
    lost = scenario.cluster.nodes[0].id
    outage: list[NodeEvent] = [NodeLost(30_001.0, lost), NodeReturned(90_000.0, lost)]
    record, _ = simulate(replace(scenario, node_events=outage))
    assert (record.finished_at > 90_000.0 + restore_cost_s).all()


def test_command_line_names_the_cause_in_one_line_after_its_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--cluster", "v100=2", "--skip-impossible", "--restore-cost", "60", "--json"]
    monkeypatch.setattr(sys, "argv", ["fairlead", "simulate", "--policy", "gandiva", *options])
    code = run(app)
    output = capsys.readouterr()
    assert code == 1
    assert output.out == ""
    warning, *progress, error = output.err.splitlines()
    assert warning.startswith("--restore-cost: 60 s is not below the round of 60 s")
    assert all(line.startswith("simulating for") for line in progress)  # on a busy machine
    assert error.startswith("fairlead: restart costs: no job made a step")
