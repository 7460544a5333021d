"""The command line as a user meets it: one process a command."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples/shortest-first"
GUIDE = Path(__file__).parents[3] / "docs/guide/policy.md"


def fairlead(*args: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "fairlead", *args],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=env,
        timeout=120,
    )


def result(*args: str, **kwargs: Any) -> dict[str, Any]:
    done = fairlead(*args, "--json", **kwargs)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_simulate_runs_on_bundled_data_and_reports_every_figure() -> None:
    figures = result("simulate", "--policy", "max-min")
    assert len(figures["jobs"]) == 120
    assert figures["unfinished"] == 0
    expected = set(
        "policy avg_jct_s median_jct_s p90_jct_s p99_jct_s makespan_s utilization rounds solves"
        " preemptions cpu_s wall_s migrations cost_usd slo_violations finish_time_fairness"
        " busy_share jobs tenants trades".split()
    )
    assert expected <= figures.keys()
    assert set(figures["jobs"][0]) == set(
        "id tenant arrival_at started_at finished_at jct_s device_s preemptions migrations"
        " first_100_steps_s".split()
    )
    assert sum(t["received_share"] for t in figures["tenants"]) == pytest.approx(1.0)
    assert sum(t["entitled_share"] for t in figures["tenants"]) == pytest.approx(1.0)


def test_same_command_gives_the_same_result_apart_from_times() -> None:
    first, second = (result("simulate", "--policy", "max-min") for _ in range(2))
    for figures in (first, second):
        del figures["cpu_s"], figures["wall_s"]
    assert first == second


def test_replay_in_a_fresh_process_gives_the_same_state(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    result("simulate", "--policy", "max-min", "--log", str(log))
    figures = result("replay", str(log))
    assert figures["same"]
    assert figures["state_sha256"] == figures["logged_sha256"]
    assert figures["events"] > 500


def test_replay_of_a_shortened_log_fails(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    result("simulate", "--log", str(log))
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:-20]))
    done = fairlead("replay", str(log))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_restore_cost_and_lost_nodes_delay_jobs(tmp_path: Path) -> None:
    failures = tmp_path / "failures.csv"
    failures.write_text("at_s,node,event\n7200,v100-0,lost\n86400,v100-0,returned\n")
    plain = result("simulate")["avg_jct_s"]
    assert result("simulate", "--restore-cost", "60")["avg_jct_s"] > plain
    assert result("simulate", "--failures", str(failures))["avg_jct_s"] > plain


def test_window_reports_only_its_jobs() -> None:
    figures = result("simulate", "--window", "10:20")
    assert [job["id"] for job in figures["jobs"]] == [
        job["id"] for job in result("simulate")["jobs"][10:20]
    ]


def test_wrong_beliefs_cost_time_but_true_speeds_determine_progress(tmp_path: Path) -> None:
    believed = tmp_path / "believed.csv"
    rows = "".join(
        f"{w},1,{a},,,1.0,\n"
        for w in "VAE SuperResolution DCGAN GRU LSTM ResNet-50 ResNext-50".split()
        for a in ("v100", "p100", "k80")
    )
    header = "workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s\n"
    believed.write_text(header + rows)
    plain = result("simulate")
    misled = result("simulate", "--believed", str(believed))
    assert misled["avg_jct_s"] > plain["avg_jct_s"]
    assert misled["unfinished"] == 0


def test_allocate_prints_shares_with_a_certificate(tmp_path: Path) -> None:
    instance = tmp_path / "instance.json"
    jobs = [
        {"id": "a", "speeds": {"v100": 40, "k80": 10}},
        {"id": "b", "speeds": {"v100": 12, "k80": 4}},
        {"id": "c", "speeds": {"v100": 100, "k80": 50}},
    ]
    instance.write_text(json.dumps({"cluster": {"v100": 1, "k80": 1}, "jobs": jobs}))
    figures = result("allocate", "--instance", str(instance), "--policy", "max-min")
    assert figures["allocation"]["c"]["k80"] == pytest.approx(10 / 11)
    assert figures["objective"] == pytest.approx(8 / 11)
    assert figures["certificate"]["gap"] <= 1e-9
    assert figures["certificate"]["bound"] == pytest.approx(8 / 11)
    assert set(figures["certificate"]["prices"]) == {"v100", "k80"}


def test_allocate_omits_the_objective_of_a_policy_without_one(tmp_path: Path) -> None:
    instance = tmp_path / "instance.json"
    jobs = [{"id": "a", "speeds": {"v100": 40}}]
    instance.write_text(json.dumps({"cluster": {"v100": 1}, "jobs": jobs}))
    for policy, objective in (("fifo", False), ("max-min", True)):
        shown = fairlead("allocate", "--instance", str(instance), "--policy", policy).stdout
        assert policy in shown
        assert ("objective" in shown) == objective


@pytest.mark.parametrize("policy", ["max-min", "makespan:agnostic", "fifo", "isolated"])
def test_allocate_of_no_jobs_is_an_empty_allocation(tmp_path: Path, policy: str) -> None:
    instance = tmp_path / "empty.json"
    instance.write_text('{"cluster": {"v100": 2}, "jobs": []}')
    figures = result("allocate", "--instance", str(instance), "--policy", policy)
    assert (figures["allocation"], figures["objective"], figures["certificate"]) == (
        {},
        None,
        None,
    )


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("simulate", "--cluster", "v100=-1"), 1, "negative"),
        (("simulate", "--cluster", "v100=2", "--policy", "nonsense"), 2, "expected one of"),
        (("simulate", "--policy", "max-min:agnostik"), 2, "expected one of agnostic"),
        (("simulate", "--window", "9"), 2, "--window"),
        (("simulate", "--mechanism", "nothing"), 2, "expected one of"),
        (("simulate", "--round", "0"), 2, "--round"),
        (("allocate", "--instance", "nowhere.json"), 1, "nowhere.json"),
        (("replay", "nowhere.jsonl"), 1, "nowhere.jsonl"),
        (("simulate", "--log", "nowhere/events.jsonl"), 1, "cannot be written"),
        (("simulate", "--mechanism", "ideal", "--log", "events.jsonl"), 2, "no events"),
    ],
)
def test_bad_input_is_one_clear_line_and_an_exit_code(
    args: tuple[str, ...], code: int, message: str
) -> None:
    done = fairlead(*args)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_custom_policy_runs_by_entry_point(tmp_path: Path) -> None:
    source = (EXAMPLE / "shortest_first.py").read_text()
    assert len(source.splitlines()) <= 25
    assert f"```python\n{source}```" in GUIDE.read_text()
    (tmp_path / "shortest_first.py").write_text(source)
    info = tmp_path / "shortest_first-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shortest-first\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(
        "[fairlead.policies]\nshortest-first = shortest_first:ShortestFirst\n"
    )
    env = {"PYTHONPATH": str(tmp_path), "PATH": ""}
    figures = result("simulate", "--policy", "shortest-first", env=env)
    assert figures["unfinished"] == 0
    assert figures["avg_jct_s"] < result("simulate", "--policy", "fifo")["avg_jct_s"]


def test_policies_lists_names_with_descriptions() -> None:
    done = fairlead("policies", "--json")
    listed = {row["name"]: row for row in json.loads(done.stdout)}
    assert {"max-min", "makespan", "fifo", "isolated", "shares", "gavel", "ideal"} <= set(listed)
    assert all(row["about"].endswith(".") for row in listed.values())


def test_the_command_line_loads_no_heavy_library() -> None:
    heavy = {"numpy", "rich", "yaml", "fastapi"}
    code = (
        "import sys, fairlead.cli.main, fairlead.cli.client.submit, fairlead.cli.operate.serve;"
        " import fairlead.cli.research.simulate, fairlead.cli.research.trace;"
        f" print({heavy} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_command_loads_no_module_of_another() -> None:
    code = (
        "import sys; from fairlead.cli.main import app;"
        "app(['policies', '--json'], standalone_mode=False);"
        "print([name for name in sys.modules if name.startswith('fairlead.cli.client.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


UNNEEDED = {
    "rich",
    "pydantic",
    "numpy.ma",
    "email",
    "importlib.metadata",
    "statistics",
    "fairlead.estimate.learned",
    "fairlead.policies._packing.table",
    "fairlead.sim.fluid",
    "fairlead.sim.generate",
    "fairlead.sim.physics.effects",
    "fairlead.sim.run_log",
    "fairlead.solve.max_min_many.stage",
    "fairlead.solve.oef.equal_levels",
}
"""modules that a short simulation of a plain policy must not load"""


def test_a_short_simulation_loads_only_what_it_needs(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,arrival_s,workload,gang,total_steps\n0,0,DCGAN,1,1000\n")
    code = (
        "import sys; from fairlead.cli.main import app;"
        f"app(['simulate', '--trace', {str(trace)!r}, '--json'], standalone_mode=False);"
        f"print({UNNEEDED} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_help_is_fast_and_names_the_commands() -> None:
    done = fairlead("--help")
    assert done.returncode == 0
    for command in ("simulate", "compare", "allocate", "policies", "trace", "replay"):
        assert command in done.stdout


def test_a_simulation_uses_one_thread() -> None:
    program = (
        "import os; from fairlead.cli.main import app\n"
        "app(['simulate', '--json'], standalone_mode=False)\n"
        "print(len(os.listdir('/proc/self/task')))"
    )
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "1"
