"""The Python API for notebooks: the same figures as the command line, as tables."""

import inspect
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fairlead
from fairlead.cli.research.simulate import simulate as simulate_command
from fairlead.model.errors import InputError, UsageError
from fairlead.notebook import FIGURES, Table

CLUSTER = "v100=4,k80=4"
SPEEDS = "gandiva-fair"


def test_simulate_gives_the_figures_of_the_command_line() -> None:
    run = fairlead.simulate("max-min", cluster=CLUSTER)
    command = [sys.executable, "-m", "fairlead", "simulate", "--cluster", CLUSTER, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = json.loads(done.stdout)
    assert run.summary == {name: expected[name] for name in FIGURES}
    assert list(run.jobs.as_dicts()) == expected["jobs"]
    assert list(run.tenants.as_dicts()) == expected["tenants"]


def test_the_parameters_are_the_options_of_the_command_line_but_for_outputs() -> None:
    options = set(inspect.signature(simulate_command).parameters) - {"log", "as_json"}
    named = {"restore_cost_s" if name == "restore_cost" else name for name in options}
    assert set(inspect.signature(fairlead.simulate).parameters) == named


def test_the_seed_draws_the_errors_of_measured_speeds() -> None:
    first, same, other = (
        fairlead.simulate(cluster=CLUSTER, truth=SPEEDS, noise=0.5, window=(0, 20), seed=seed)
        for seed in (0, 0, 1)
    )
    assert first.summary == same.summary
    assert first.summary != other.summary


def test_failures_name_a_file_of_node_events(tmp_path: Path) -> None:
    failures = tmp_path / "failures.csv"
    failures.write_text("at_s,node,event\n0,v100-0,lost\n")
    run = fairlead.simulate(cluster=CLUSTER, window=(0, 5), failures=failures)
    assert run.result.busy_share["v100"] == 0


def test_compare_gives_one_row_per_policy_and_counts_restarts() -> None:
    options: dict[str, Any] = {"cluster": CLUSTER, "window": (0, 20)}
    table = fairlead.compare(["max-min", "fifo"], **options)
    assert table["policy"] == ["max-min", "fifo"]
    assert "Each restart costs a job 20 s." in table._repr_html_()
    free = fairlead.compare(["max-min", "fifo"], restore_cost_s=0, **options)
    assert free.caption == "Each restart costs a job 0 s."
    assert free["avg_jct_s"] == [
        fairlead.simulate(policy, **options).summary["avg_jct_s"] for policy in free["policy"]
    ]
    for costly, without in zip(table["avg_jct_s"], free["avg_jct_s"], strict=True):
        assert costly > without


def test_impossible_jobs_are_skipped_on_request(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "job_id,arrival_s,workload,gang,total_steps\na,0,LSTM,1,100\nb,0,LSTM,64,100\n"
    )
    with pytest.raises(InputError, match=r"job 'b'.*or skip such jobs with skip_impossible=True"):
        fairlead.simulate(cluster=CLUSTER, trace=str(trace))
    run = fairlead.simulate(cluster=CLUSTER, trace=str(trace), skip_impossible=True)
    assert run.jobs["id"] == ["a"]
    assert [job.id for job in run.result.skipped] == ["b"]
    table = fairlead.compare(["fifo"], cluster=CLUSTER, trace=str(trace), skip_impossible=True)
    assert table.caption.endswith("Jobs skipped because they can never run: 1.")


def test_jobs_above_their_tenants_limits_are_impossible_unless_fractions_count(
    tmp_path: Path,
) -> None:
    trace, tenants = tmp_path / "trace.csv", tmp_path / "tenants.yaml"
    head = "job_id,arrival_s,workload,gang,total_steps,tenant\n"
    trace.write_text(f"{head}a,0,LSTM,2,100,lab\nb,0,LSTM,1,100,lab\n")
    tenants.write_text("tenants: [{id: lab, limit: {v100: 1, k80: 0}}]")
    options: dict[str, Any] = {
        "cluster": CLUSTER, "trace": str(trace), "tenants_file": tenants
    }  # fmt: skip
    with pytest.raises(InputError, match=r"trace\.csv:2: tenant: job 'a' needs 2 devices at once"):
        fairlead.simulate(**options)
    run = fairlead.simulate(skip_impossible=True, **options)
    assert [job.id for job in run.result.skipped] == ["a"]
    # A fluid mechanism runs the gang for half of the time.
    fluid = fairlead.simulate(mechanism="ideal", **options)
    assert fluid.result.unfinished == 0


def test_a_table_renders_as_escaped_html_and_shortens_long_ones() -> None:
    table = Table(("job", "jct_s"), tuple((f"<{i}>", 1.23456789) for i in range(60)))
    page = table._repr_html_()
    assert "&lt;0&gt;" in page
    assert "1.235" in page
    assert "10 more rows" in page


def test_errors_name_the_column_or_the_input() -> None:
    with pytest.raises(UsageError, match="no such column"):
        Table(("a",), ())["b"]
    with pytest.raises(InputError):
        fairlead.simulate(cluster="v100=x")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"round_s": 0}, "round_s: out of range: expected 0.001 to 1e+10"),
        ({"round_s": -1.0}, "round_s: out of range: expected 0.001 to 1e+10"),
        ({"round_s": math.nan}, "round_s: out of range: expected"),
        ({"round_s": "60"}, "round_s: not a number: '60': expected one such as 2.5"),
        ({"restore_cost_s": -300.0}, "restore_cost_s: out of range: expected 0 to 1e+09"),
        ({"restore_cost_s": math.nan}, "restore_cost_s: out of range: expected 0 to 1e+09"),
        ({"truth": SPEEDS, "noise": -0.1}, "noise: out of range: expected 0 to 1"),
        ({"truth": SPEEDS, "noise": 5.0}, "noise: out of range: expected 0 to 1"),
        ({"truth": SPEEDS, "noise": math.nan}, "noise: out of range: expected 0 to 1"),
        ({"truth": SPEEDS, "plan_on": 7.0}, "plan_on: out of range: expected 0.01 to 0.99"),
        ({"cluster": {"v100": 4}}, "cluster: not a text: an object: expected accelerator=count"),
        ({"window": "1:3"}, "window: not a pair: '1:3': expected two numbers such as (0, 20)"),
        ({"window": (1, 2, 3)}, "window: not a pair: (1, 2, 3): expected two numbers"),
        ({"mechanism": "hadar"}, "mechanism: 'hadar' realises no policy: name it as the policy"),
    ],
)
def test_values_that_the_command_line_refuses_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises((UsageError, InputError), match=f"^{re.escape(message)}"):
        fairlead.simulate("fifo", **options)


def test_a_comparison_needs_different_policies() -> None:
    with pytest.raises(UsageError, match=r"^policies: empty: expected a list"):
        fairlead.compare([])
    with pytest.raises(UsageError, match=r"^policies: a text: 'fifo': expected a list: \['fifo'"):
        fairlead.compare("fifo")
    with pytest.raises(UsageError, match=r"^policies: duplicate: 'fifo'"):
        fairlead.compare(["fifo", "fifo"])


def test_importing_fairlead_loads_no_numpy() -> None:
    code = "import sys, fairlead; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
