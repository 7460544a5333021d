"""``fairlead audit`` and ``fairlead explain`` from the command line."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from plotly.offline import get_plotlyjs

GUIDE = Path(__file__).parents[3] / "docs/guide"
TWO = str(GUIDE / "fairness/two.json")
THREE = str(GUIDE / "fairness/three.json")


def fairlead(*args: str, cwd: Path | None = None) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "fairlead", *args],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=300,
    )


def result(*args: str) -> dict[str, Any]:
    done = fairlead(*args, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_audit_writes_the_figures_with_their_witnesses() -> None:
    document = result("audit", "--instance", TWO, "--policy", "oef")
    expected = "policy pareto_slack envy sharing_incentive misreport efficiency feasible_set"
    assert set(expected.split()) <= document.keys()
    assert document["envy"]["who"] == "u2"
    assert document["envy"]["whom"] == "u1"
    assert document["sharing_incentive"]["who"] == "u2"
    assert document["misreport"]["over"]["best_gain"] < 1e-4
    under = document["misreport"]["under"]
    assert under["who"] == "u2"
    assert under["best_gain"] > 0.556
    assert 2 < under["lie"]["job-2"]["fast"] <= 2.5


def test_violated_limit_exits_with_1_and_names_the_witness() -> None:
    done = fairlead(
        "audit", "--instance", THREE, "--policy", "trading", "--lies", "0", "--json",
        "--fail-if", "envy>1e-6", "--fail-if", "efficiency<0.5",
    )  # fmt: skip
    assert done.returncode == 1
    assert json.loads(done.stdout)["envy"]["who"] == "u3"
    message = done.stderr.strip()
    assert "\n" not in message
    assert "envy is 0.05" in message
    assert "u3 would run 5.0 % faster with the devices of u2" in message
    assert "efficiency" not in message


def test_audit_passes_if_the_limit_holds() -> None:
    args = ("audit", "--instance", THREE, "--policy", "oef-cooperative", "--lies", "0")
    assert fairlead(*args, "--fail-if", "envy>1e-6").returncode == 0


@pytest.mark.parametrize(
    "args",
    [
        ("--instance", TWO, "--policy", "oef", "--fail-if", "jealousy>1"),
        ("--instance", TWO, "--policy", "nonsense"),
        ("--instance", TWO, "--policy", "oef", "--by", "job"),
        ("--instance", TWO, "--policy", "oef", "--at", "3"),
        ("--policy", "oef"),
        ("--policy", "max-min", "--trace", "t.csv"),
    ],
)
def test_audit_rejects_invalid_options(args: tuple[str, ...]) -> None:
    done = fairlead("audit", *args)
    assert done.returncode == 2
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


def test_audits_of_several_policies_print_one_table() -> None:
    args = ("audit", "--instance", TWO, "--policy", "max-min", "--policy", "isolated")
    done = fairlead(*args, "--lies", "0")
    assert done.returncode == 0
    assert "max-min" in done.stdout
    assert "isolated" in done.stdout
    audits = result(*args, "--lies", "0")["audits"]
    assert [audit["policy"] for audit in audits] == ["max-min", "isolated"]


def test_audit_of_a_simulated_trace_at_a_given_time(tmp_path: Path) -> None:
    trace, speeds = tmp_path / "t.csv", tmp_path / "s.csv"
    trace.write_text(
        "job_id,arrival_s,workload,gang,total_steps\n"
        + "".join(f"j{i},{100 * i},m,1,100000\n" for i in range(4))
    )
    head = "workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s\n"
    speeds.write_text(head + "m,1,v100,,,4.0,\nm,1,k80,,,1.0,\n")
    args = ("--trace", str(trace), "--speeds", str(speeds), "--cluster", "v100=1,k80=1")
    with trace.open("a") as file:
        file.write("too-big,300,m,4,100000\n")
    refused = fairlead("audit", "--policy", "max-min", *args, "--at", "1000")
    assert "or skip such jobs with --skip-impossible" in refused.stderr
    policy = ("--policy", "max-min", "--skip-impossible")
    audited = fairlead("audit", *policy, *args, "--at", "1000", "--lies", "20", "--json")
    assert "skipped 1 job that can never run:\n  too-big: " in audited.stderr
    document = json.loads(audited.stdout)
    assert [participant["id"] for participant in document["participants"]] == [
        "j0",
        "j1",
        "j2",
        "j3",
    ]
    assert document["envy"]["worst"] == pytest.approx(0, abs=1e-9)
    late = fairlead("audit", *policy, *args, "--at", "1e9")
    assert late.returncode == 1
    assert "all jobs have finished" in late.stderr


def test_report_has_every_figure_and_loads_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    args = ("--instance", THREE, "--policy", "trading", "--policy", "oef", "--lies", "40")
    assert fairlead("audit", *args, "--report", str(page)).returncode == 0
    text = page.read_text(encoding="utf-8")
    data = re.search(r"id='figures'>(.*?)</script>", text, re.DOTALL)
    assert data
    figures = json.loads(data[1])
    assert list(figures) == ["envy", "incentive", "lies"]
    assert all(len(figure["views"]) == 2 for figure in figures.values())
    heat = figures["envy"]["views"][0]["data"][0]
    assert heat["x"] == ["u1", "u2", "u3"]
    assert heat["z"][2][1] == pytest.approx(5.0)
    for figure in figures.values():
        assert all(trace["x"] for view in figure["views"] for trace in view["data"])
    own = text.replace(get_plotlyjs(), "")
    assert not re.search(r"https?://", own)
    assert not re.search(r"<(script|img|iframe|link)[^>]*\b(src|href)\s*=", own)


def test_guide_shows_the_table_that_its_command_prints() -> None:
    text = (GUIDE / "fairness.md").read_text(encoding="utf-8")
    command = re.search(r"\$ (fairlead audit --instance two.*?--markdown)", text, re.DOTALL)
    table = re.search(r"<!-- audit table -->\s*(.*?)\s*<!-- end", text, re.DOTALL)
    assert command
    assert table
    args = shlex.split(command[1].replace("\\\n", " "))[1:]
    done = fairlead(*args, cwd=GUIDE / "fairness")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == table[1].strip()
    rows = {row.split("|")[1].strip(): row for row in table[1].splitlines()}
    assert "✗ 1.4 % (slack)" in rows["`oef-cooperative`"]
    assert "✗ 6.1 % (four)" in rows["`trading`"]


def test_explain_prints_text_and_json() -> None:
    done = fairlead("explain", "job-2", "--instance", THREE, "--policy", "max-min")
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "job job-2 makes 1.455 steps/s" in text
    assert "Cheapest change: it would run 49.2 % faster with its weight doubled" in text
    document = result("explain", "job-2", "--instance", THREE, "--policy", "max-min")
    assert document["cheapest"]["edit"] == {"jobs": {"job-2": {"weight": 2.0}}}
    assert set(document["prices"]) == {"slow", "fast"}
    assert {b["what"] for b in document["binding"]} == {"devices"}


def test_guide_shows_the_output_of_explain() -> None:
    text = (GUIDE / "explain.md").read_text(encoding="utf-8")
    shown = re.search(r"\$ fairlead (explain .*?)\n(.*?)```", text, re.DOTALL)
    assert shown
    done = fairlead(*shlex.split(shown[1]), cwd=GUIDE.parents[1])
    assert done.stdout.split() == shown[2].split()


def test_explain_of_an_unknown_id_names_similar_ids() -> None:
    done = fairlead("explain", "jop-2", "--instance", THREE)
    assert done.returncode == 1
    assert "no job or tenant with jobs: 'jop-2'" in done.stderr
    assert "job-2" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["audit", "explain"])
def test_help_has_an_example(command: str) -> None:
    assert f"fairlead {command} " in fairlead(command, "--help").stdout
