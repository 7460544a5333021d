"""``fairlead compare`` as a user types it."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fairlead.cli.main import app
from fairlead.files import write_trace
from fairlead.model.errors import FairleadError, InputError, UsageError
from fairlead.model.job import Job

TINY = ("--jobs", 10, "--duration-factor", 0.02, "--cluster", "v100=2,k80=2", "--workers", 1)


def run(*args: object) -> Result:
    return CliRunner().invoke(app, ["compare", *map(str, args)])


def test_compare_writes_a_report_and_two_tables_and_prints_the_figures(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    result = run(
        "--policies", "fifo,isolated", "--seeds", 2, "--loads", "12,6", *TINY, "--out", out
    )  # fmt: skip
    assert result.exit_code == 0, result.exception
    assert sorted(path.name for path in out.iterdir()) == [
        "jobs.csv",
        "report.html",
        "results.csv",
    ]
    assert result.stdout.index("6 jobs/h") < result.stdout.index("12 jobs/h")
    for word in ("fifo", "isolated", "median", "makespan", "±", "×", "report.html"):
        assert word in result.stdout
    # The restore cost that nobody gave is stated on stderr, with the table and in every caption.
    assert result.stderr == (
        "--restore-cost: 20 s lost at each restart of a job; 0 ignores restarts\n"
    )
    assert "20 s lost per restart" in result.stdout
    page = (out / "report.html").read_text()
    captions = re.findall(r"<(?:figcaption|p class='caption')>(.*?)<", page)
    assert len(captions) == 7
    assert all(caption.endswith("Each restart costs a job 20 s.") for caption in captions)


def test_short_rounds_lower_the_restore_cost_and_0_gives_the_figures_without(
    tmp_path: Path,
) -> None:
    options = ("--policies", "isolated", "--seeds", 1, "--loads", 6, *TINY, "--json")
    short = json.loads(run(*options, "--round", 10, "--out", tmp_path).stdout)
    assert short["restore_cost_s"] == 5
    free = json.loads(run(*options, "--restore-cost", 0, "--out", tmp_path).stdout)
    assert free["restore_cost_s"] == 0
    costly = json.loads(run(*options, "--out", tmp_path).stdout)
    assert costly["runs"][0]["avg_jct_s"] > free["runs"][0]["avg_jct_s"]


def test_impossible_jobs_are_skipped_listed_and_counted(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    jobs = [
        Job(id=name, workload="ResNet-50", total_steps=2000.0, gang=gang)
        for name, gang in (("small", 1), ("<large>", 64))
    ]
    write_trace(jobs, trace)
    options = ("--policies", "fifo,isolated", "--trace", trace, "--cluster", "v100=1,k80=1")
    refused = run(*options, "--workers", 1, "--out", tmp_path)
    assert isinstance(refused.exception, InputError)
    assert "job '<large>' needs 64 devices" in str(refused.exception)
    assert str(refused.exception).endswith("or skip such jobs with --skip-impossible")
    result = run(*options, "--workers", 1, "--out", tmp_path, "--skip-impossible")
    assert "skipped 1 job that can never run:\n  <large>: job '<large>' needs" in result.stdout
    page = (tmp_path / "report.html").read_text()
    assert "Skipped jobs: 1" in page
    assert "<th>&lt;large&gt;</th>" in page
    assert " --skip-impossible" in page
    simulated = CliRunner().invoke(
        app, ["simulate", "--policy", "fifo", *map(str, options[2:]), "--skip-impossible"]
    )
    assert "fifo: 1 job " in simulated.stdout
    assert "skipped 1 job that can never run:" in simulated.stdout


def test_json_is_one_document_and_nothing_else_on_stdout(tmp_path: Path) -> None:
    result = run(
        "--policies", "fifo", "--policies", "isolated", "--seeds", 1, "--loads", 6, *TINY,
        "--out", tmp_path, "--json",
    )  # fmt: skip
    document = json.loads(result.stdout)
    assert [(r["policy"], r["seed"], r["load"], r["jobs"]) for r in document["runs"]] == [
        ("fifo", 0, 6.0, 10),
        ("isolated", 0, 6.0, 10),
    ]
    assert document["runs"][0]["unfinished"] == 0
    assert document["report"] == str(tmp_path / "report.html")
    assert document["csv"] == str(tmp_path / "results.csv")


def test_the_command_in_the_report_gives_the_same_tables(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    run("--policies", "isolated,fifo", "--seeds", 2, "--loads", "6", *TINY, "--out", first)
    page = (first / "report.html").read_text()
    command = shlex.split(page.partition("<pre><code>")[2].partition("</code>")[0])
    assert command[:2] == ["fairlead", "compare"]
    assert run(*command[2:], "--workers", 1, "--out", second).exit_code == 0
    for name in ("results.csv", "jobs.csv"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_a_given_trace_needs_neither_seeds_nor_loads(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    jobs = [
        Job(id=f"j{i}", workload="ResNet-50", total_steps=2000.0, arrival_at=60.0 * i)
        for i in range(4)
    ]
    write_trace(jobs, trace)
    result = run(
        "--policies", "fifo,isolated", "--trace", trace, "--cluster", "v100=1,k80=1",
        "--workers", 1, "--window", "1:3", "--out", tmp_path,
    )  # fmt: skip
    assert result.exit_code == 0, result.exception
    rows = (tmp_path / "jobs.csv").read_text().splitlines()
    assert [row.split(",")[:4] for row in rows[1:3]] == [
        ["fifo", "", "", "j1"],
        ["fifo", "", "", "j2"],
    ]


def test_strategies_of_a_search_are_compared_under_the_policies(tmp_path: Path) -> None:
    rows = [{"values": [0.1 * (i + 1)] * 3 + [0.1 * (i + 2)]} for i in range(6)]
    file, first, second = tmp_path / "curves.json", tmp_path / "a", tmp_path / "b"
    file.write_text(json.dumps({"metric": "score", "report_s": 10, "trials": rows}))
    options = ("--search", file, "--cluster", "v100=2", "--workers", 1)
    policies = ("--policies", "max-min,fifo", "--round", 10, "--strategies", "none,asha")
    result = run(*options, *policies, "--target", 0.7, "--seeds", 2, "--out", first, "--json")
    assert result.exit_code == 0, result.exception
    assert result.stderr.startswith("--restore-cost: 5 s lost at each restart")
    document = json.loads(result.stdout)
    cases = [(case["strategy"], case["policy"], case["seeds"]) for case in document["cases"]]
    assert cases == [(s, p, 2) for s in ("none", "asha") for p in ("max-min", "fifo")]
    assert document["cases"][0]["reached"] == 2
    assert sorted(path.name for path in first.iterdir()) == ["report.html", "results.csv"]
    page = (first / "report.html").read_text()
    command = shlex.split(page.partition("<pre><code>")[2].partition("</code>")[0])
    again = run(*command[2:], "--workers", 1, "--out", second)
    assert "Minutes to score 0.7, mean ± deviation of 2 orders" in again.stdout
    assert (first / "results.csv").read_bytes() == (second / "results.csv").read_bytes()
    for wrong, problem in {
        ("--loads", 2): "--loads: excluded by --search",
        ("--trace", file): "--trace: excluded by --search",
        ("--strategies", "ash"): "--strategies: 'ash': expected some of feedback,asha",
        ("--target", 5): "--target: 5 is reached by no trial: expected at most 0.7",
        ("--target", "nan"): "--target: not finite: nan: expected a value of score",
        (): "--target: missing: expected a value of score",
    }.items():
        needed = () if "--target" in wrong or not wrong else ("--target", 0.5)
        refused = run("--policies", "fifo", *options, *needed, *wrong, "--out", tmp_path / "c")
        assert isinstance(refused.exception, UsageError)
        assert problem in str(refused.exception)
    fluid = run("--policies", "max-min", "--mechanism", "ideal", *options, "--target", 0.5)
    assert "gives fractions of devices" in str(fluid.exception)
    assert "needs --search" in str(run("--policies", "fifo", "--target", 1).exception)


@pytest.mark.parametrize(
    ("policies", "mechanism", "problem"),
    [
        ("max-min,oef", "gavel", "oef: it realises time shares of jobs, not devices of tenants"),
        ("max-min:packed", "shares", "max-min:packed: this mechanism runs every job alone"),
    ],
)
def test_mechanism_that_cannot_realise_a_policy_is_refused_before_any_run(
    tmp_path: Path, policies: str, mechanism: str, problem: str
) -> None:
    curves = tmp_path / "curves.json"
    trials = [{"values": [0.1, 0.2]}]
    curves.write_text(json.dumps({"metric": "score", "target": 0.2, "trials": trials}))
    for jobs in (TINY, ("--search", curves)):
        options = ("--policies", policies, "--mechanism", mechanism, "--out", tmp_path / "out")
        refused = run(*jobs, *options)
        assert isinstance(refused.exception, UsageError)
        assert str(refused.exception).startswith(f"--mechanism: {problem}")
    assert not (tmp_path / "out").exists()


def test_static_traces_have_seeds_but_no_loads(tmp_path: Path) -> None:
    result = run(
        "--policies", "fifo", "--kind", "static", "--seeds", 2, *TINY, "--out", tmp_path
    )  # fmt: skip
    assert result.exit_code == 0, result.exception
    rows = (tmp_path / "results.csv").read_text().splitlines()
    assert [row.split(",")[:3] for row in rows[1:]] == [["fifo", "0", ""], ["fifo", "1", ""]]


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        (("--policies", "fifo,nonsense"), UsageError, "nonsense"),
        (("--policies", "fifo,fifo"), UsageError, "duplicate"),
        (("--policies", "max-min:agnostic,colour=red"), UsageError, "colour"),
        (("--policies", "fifo", "--trace", "x.csv", "--loads", "2"), UsageError, "--loads"),
        (("--policies", "fifo", "--trace", "x.csv", "--seeds", "2"), UsageError, "--seeds"),
        (("--policies", "fifo", "--trace", "x.csv", "--jobs", "2"), UsageError, "--jobs"),
        (("--policies", "fifo", "--kind", "static", "--loads", "2"), UsageError, "--loads"),
        (("--policies", "fifo", "--loads", "2,0"), UsageError, "above 0"),
        (("--policies", "fifo", "--loads", "2,2"), UsageError, "different"),
        (("--policies", "fifo", "--loads", "many"), UsageError, "many"),
        (("--policies", "fifo", "--duration-factor", "0"), UsageError, "--duration-factor"),
        (("--policies", "fifo", "--window", "9:3"), UsageError, "--window"),
        (("--policies", "ideal"), UsageError, "ideal"),
        (("--policies", "fifo", "--trace", "missing.csv"), InputError, "missing.csv"),
    ],
)
def test_invalid_options_are_refused_before_any_run(
    args: tuple[str, ...], error: type[FairleadError], message: str, tmp_path: Path
) -> None:
    result = run(*args, "--out", tmp_path / "out")
    assert isinstance(result.exception, error)
    assert message in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_created_is_one_clear_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from fairlead.cli.main import run; run()",
            *("compare", "--policies", "fifo", "--out", str(file / "out")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "[input]" in done.stderr
    assert len(done.stderr.splitlines()) == 1
