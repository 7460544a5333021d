"""What the command line says when it cannot do what it is asked: one line, and never a trace."""

import json
import os
import sys
from pathlib import Path

import pytest
import typer

from fairlead.cli.client.watch import drawn
from fairlead.cli.main import app
from fairlead.cli.shared.errors import run
from fairlead.cli.shared.instances import snapshot_for
from fairlead.cli.shared.output import counted, printable, table
from fairlead.client import Client, ServerError
from fairlead.policies.rules.priority import policy_named


def refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["fairlead", *words])
    code = run(app)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1, told.err
    return code, told.err.strip()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["compare"], "Missing option '--policies'"),
        (["simulate", "--bogus"], "see fairlead simulate --help [usage]"),
        (["simulat"], "Did you mean 'simulate'? [usage]"),
        (["simulate", "--round", "0"], "--round"),
        (["simulate", "--round", "inf"], "--round inf is not allowed: give a finite number"),
        (["simulate", "--window", "1_0:20"], "--window '1_0:20' is not A:B"),
        (["simulate", "--window", "٣:٥"], "--window '٣:٥' is not A:B"),
        (["trace", "generate", "--jobs", "many"], "see fairlead trace generate --help"),
        (["simulate", "--policy", "hadar:horizon-s=inf"], "horizon-s=inf is not allowed"),
        (["simulate", "--policy", "gandiva-fair:gain=nan"], "give a finite number"),
        (["simulate", "--mechanism", "gavel:min-interval-s=-1"], "give 0 or more seconds"),
    ],
)
def test_misuse_is_one_line_that_says_where_to_look(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    says: str,
) -> None:
    code, told = refused(monkeypatch, capsys, *words)
    assert code == 2
    assert told.startswith("fairlead: ")
    assert says in told


@pytest.mark.parametrize(
    "words",
    [
        ["allocate", "--policy", "makespan"],
        ["allocate", "--policy", "sjf"],
        ["allocate", "--policy", "cost-slo"],
        ["explain", "a", "--policy", "finish-time"],
        ["audit", "--policy", "finish-time", "--lies", "0"],
        ["export", "--policy", "makespan"],
    ],
)
def test_an_unknown_length_is_refused_by_who_looks_at_it_and_by_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: list[str],
) -> None:
    instance = tmp_path / "instance.json"
    jobs: list[dict[str, object]] = [
        {"id": "a", "speeds": {"v100": 1.0}, "steps_left": 5},
        {"id": "b", "speeds": {"v100": 1.0}, "deadline_s": 9},
    ]
    instance.write_text(json.dumps({"cluster": {"v100": 1}, "jobs": jobs}))
    code, told = refused(monkeypatch, capsys, *words, "--instance", str(instance))
    assert code == 1
    assert "instance.json: jobs[1].steps_left: " in told
    assert told.endswith("job 'b' does not say; give the steps that it has left [input]")
    del jobs[1]["deadline_s"]
    instance.write_text(json.dumps({"cluster": {"v100": 1}, "jobs": jobs}))
    snapshot_for(policy_named("cost-slo"), instance)
    snapshot_for(policy_named("max-min"), instance)


@pytest.mark.parametrize("json_", [[], ["--json"]])
def test_rows_that_would_have_one_name_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    json_: list[str],
) -> None:
    instance = tmp_path / "instance.json"
    jobs = [{"id": name, "speeds": {"v100": 1.0}} for name in ("a", "b", "a+b")]
    pairs = [{"jobs": ["a", "b"], "speeds": {"v100": [0.9, 0.9]}}]
    instance.write_text(json.dumps({"cluster": {"v100": 1}, "jobs": jobs, "pairs": pairs}))
    words = ["allocate", "--instance", str(instance), "--policy", "max-min:packed", *json_]
    code, told = refused(monkeypatch, capsys, *words)
    assert code == 1
    assert "jobs: " in told
    assert "the job 'a+b'" in told
    assert "the pair of 'a' and 'b'" in told
    assert told.endswith("would both be called 'a+b'; give the jobs ids without + [input]")


def test_a_restore_cost_beyond_a_round_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", "--policy", "fifo", "--restore-cost", "400", "--round", "360", "--json"]
    monkeypatch.setattr(sys, "argv", ["fairlead", *words])
    assert run(app) == 0
    told = capsys.readouterr()
    assert told.err.startswith("--restore-cost 400 is not below the round of 360 s")
    assert told.err.count("\n") == 1
    assert '"unfinished":0' in told.out


def test_a_fault_of_our_own_is_one_line_and_its_trace_lies_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    faulty = typer.Typer()

    @faulty.command()
    def divide() -> None:
        raise ZeroDivisionError("by \x1b[2J nought")

    monkeypatch.setattr(sys, "argv", ["fairlead"])
    assert run(faulty) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "\x1b" not in told
    (kept,) = tmp_path.glob("fairlead-*.txt")
    assert str(kept) in told
    assert "in divide" in kept.read_text()


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    told = tmp_path / "told"
    command = f"{sys.executable} -m fairlead policies --json > /dev/full 2> {told}"
    assert os.waitstatus_to_exitcode(os.system(command)) == 1
    assert told.read_text().startswith("fairlead: No space left on device")
    assert told.read_text().count("\n") == 1


def test_names_are_no_markup_and_no_orders_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ["[/foo]", "[red]x[/red]", ":smile:", "\x1b[2Jgone", "a\nb"]
    table("names", ["name"], [[name] for name in names])
    told = capsys.readouterr().out
    assert [name for name in names[:3] if name not in told] == []
    assert "\\x1b[2Jgone" in told
    assert "a\\nb" in told
    assert printable("née [x]") == "née [x]"


def test_a_list_of_jobs_counts_one_job_as_one() -> None:
    job = {
        "id": "j1",
        "name": "\x1b[31m",
        "tenant": "[/t]",
        "state": "queued",
        "devices": 0,
        "accelerator": None,
        "steps_done": 0.0,
        "total_steps": 5,
        "preemptions": 0,
    }
    assert str(drawn([job]).title) == "1 job"
    assert (counted(0, "node"), counted(2, "node")) == ("0 nodes", "2 nodes")
    assert [*drawn([job]).columns[1].cells] == ["\\x1b[31m"]


@pytest.mark.parametrize(
    "url", ["foo", "ftp://x", "http://127.0.0.1:99999", "http://:80", "http://[::1", ""]
)
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ServerError, match="no server's address"):
        Client(url, "token")
