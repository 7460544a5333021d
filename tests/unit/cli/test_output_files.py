"""Commands refuse to write over a file that they read."""

import shutil
import sys
from pathlib import Path

import pytest

from fairlead.cli.main import app
from fairlead.cli.shared.errors import run

TRACE = "job_id,arrival_s,workload,gang,total_steps\na,0,ResNet-50,1,100\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a trace under several names, also as an earlier result."""
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "link.csv").symlink_to("trace.csv")
    (tmp_path / "cluster.yaml").write_text("v100: 2\n")
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "results").mkdir()
    shutil.copy(tmp_path / "trace.csv", tmp_path / "results" / "jobs.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "simulate --trace trace.csv --log trace.csv",
            "--log: trace.csv is also read as --trace: expected another --log",
        ),
        ("simulate --trace trace.csv --log link.csv", "--log: link.csv is also read as --trace"),
        ("simulate --trace link.csv --log trace.csv", "--log: trace.csv is also read as --trace"),
        (
            "simulate --cluster cluster.yaml --log cluster.yaml",
            "--log: cluster.yaml is also read as --cluster",
        ),
        (
            "compare --policies fifo --trace results/jobs.csv --out results",
            "--out: results/jobs.csv is also read as --trace: expected another --out",
        ),
        (
            "audit --policy fifo --instance jobs.json --instance other.json --report other.json",
            "--report: other.json is also read as --instance: expected another --report",
        ),
        (
            "trace generate --cluster cluster.yaml --out cluster.yaml",
            "--out: cluster.yaml is also read as --cluster",
        ),
        (
            "trace convert trace.csv link.csv",
            "OUT: link.csv is also read as IN: expected another OUT",
        ),
    ],
)
def test_an_output_that_is_also_an_input_is_refused_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    line: str,
    message: str,
) -> None:
    before = {path: path.read_text() for path in folder.rglob("*.*")}
    monkeypatch.setattr(sys, "argv", ["fairlead", *line.split()])
    assert run(app) == 2
    output = capsys.readouterr()
    assert output.err.startswith(f"fairlead: {message}")
    assert output.err.count("\n") == 1
    assert {path: path.read_text() for path in folder.rglob("*.*")} == before
