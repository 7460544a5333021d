"""``fairlead trace`` as a user types it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fairlead.cli.research.trace import app
from fairlead.data import DEFAULT_CLUSTER
from fairlead.files import read_trace
from fairlead.model.errors import InputError, UsageError

PHILLY = "vc,seq,arrival_s,num_gpus,duration_s\nx,0,0,1,100\ny,0,6,4,100\n"


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def test_generate_writes_csv_to_stdout_and_nothing_else() -> None:
    result = run("generate", "--jobs", 5)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("job_id,arrival_s,workload")
    assert len(lines) == 6


def test_generate_to_a_file_reports_on_stderr(tmp_path: Path) -> None:
    out = tmp_path / "trace.jsonl.gz"
    result = run("generate", "--jobs", 5, "--tenants", 2, "--out", out)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "5 jobs" in result.stderr
    assert len(read_trace(out)) == 5


def test_generate_json_is_one_document(tmp_path: Path) -> None:
    whole = json.loads(run("generate", "--jobs", 5, "--json").stdout)
    assert len(whole["jobs"]) == whole["summary"]["jobs"] == 5
    out = tmp_path / "trace.csv"
    document = json.loads(
        run("generate", "--window", "10:20", "--jobs", 1, "--json", "--out", out).stdout
    )
    assert document["jobs"] == len(read_trace(out)) == 31


def test_generate_is_the_same_every_time() -> None:
    args = ("generate", "--kind", "continuous-multiple", "--seed", 3, "--cluster", "v100=4,k80=8")
    assert run(*args).stdout == run(*args).stdout
    assert run(*args).stdout != run(*args[:-3], 4).stdout


def test_convert_detects_the_format(tmp_path: Path) -> None:
    log, out = tmp_path / "log.csv", tmp_path / "out.csv"
    log.write_text(PHILLY)
    result = run("convert", log, out, "--vc", "y", "--json")
    document = json.loads(result.stdout)
    assert (document["from"], document["jobs"], document["left_out"]) == ("philly", 1, 0)
    assert [job.tenant for job in read_trace(out)] == ["y"]


def test_convert_without_out_prints_the_trace(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(PHILLY)
    result = run("convert", "--from", "philly", log)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 3


def test_a_dash_means_stdout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text(PHILLY)
    assert run("convert", "log.csv", "-").stdout == run("convert", "log.csv").stdout != ""
    assert run("generate", "--jobs", 3, "--out", "-").stdout.startswith("job_id,")
    assert not Path("-").exists()


def test_validate_prints_a_summary(tmp_path: Path) -> None:
    out = tmp_path / "trace.csv"
    args = ("--kind", "continuous-multiple", "--cluster", DEFAULT_CLUSTER, "--out", out)
    run("generate", "--tenants", 3, *args)
    plain = run("validate", out, "--speeds", "gandiva-fair", "--cluster", DEFAULT_CLUSTER)
    assert plain.exit_code == 0
    for word in ("jobs", "arrivals", "gangs", "tenant-2", "device-hours on v100", "load"):
        assert word in plain.stdout
    summary = json.loads(
        run("validate", out, "--speeds", "gandiva-fair", "--cluster", "v100=8", "--json").stdout
    )
    assert summary["reference_devices"] == pytest.approx(8)
    assert summary["load"] == pytest.approx(summary["device_h"] / 8 / summary["span_h"])


def test_validate_needs_neither_speeds_nor_cluster(tmp_path: Path) -> None:
    out = tmp_path / "trace.csv"
    run("generate", "--jobs", 3, "--out", out)
    summary = json.loads(run("validate", out, "--json").stdout)
    assert (summary["jobs"], summary["device_h"]) == (3, None)
    assert run("validate", out, "--speeds", "gandiva-fair").exit_code == 0


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("generate", "--jobs", "0"), UsageError),
        (("generate", "--rate", "-1"), UsageError),
        (("generate", "--window", "5"), UsageError),
        (("generate", "--window", "9:5"), UsageError),
        (("generate", "--deadlines", "soon"), UsageError),
        (("generate", "--speeds", "nowhere.csv"), InputError),
        (("generate", "--cluster", "v100=-1"), InputError),
        (("generate", "--out", "/nowhere/at/all.csv", "--jobs", "1"), InputError),
        (("validate", "nowhere.csv"), InputError),
        (("validate", "nowhere.csv", "--cluster", "v100=1"), UsageError),
        (("convert", "nowhere.csv"), InputError),
    ],
)
def test_mistakes_raise_fairlead_errors(args: tuple[str, ...], error: type[Exception]) -> None:
    result = run(*args)
    assert isinstance(result.exception, error)
    assert result.stdout == ""


def test_a_faulty_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("job_id,arrival_s,workload,gang,total_steps\na,0,GRU,1,5\nb,x,GRU,1,5\n")
    error = run("validate", path).exception
    assert isinstance(error, InputError)
    assert (error.line, error.field) == (3, "arrival_s")


@pytest.mark.parametrize("command", ["generate", "convert", "validate"])
def test_help_has_an_example(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: fairlead trace {command}" in result.stdout


def test_help_loads_no_numpy_and_no_yaml() -> None:
    code = (
        "import sys, fairlead.cli.research.trace;"
        " print({'numpy', 'yaml', 'highspy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
