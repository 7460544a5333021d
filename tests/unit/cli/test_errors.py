"""Errors of the command line: one line and no traceback."""

import json
import os
import sys
from pathlib import Path

import pytest
import typer

from fairlead.cli.client.watch import jobs_table
from fairlead.cli.main import app
from fairlead.cli.shared.errors import run
from fairlead.cli.shared.instances import snapshot_for
from fairlead.cli.shared.output import pluralise, printable, table
from fairlead.client import Client, ServerError
from fairlead.policies.rules.priority import create_policy


def refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["fairlead", *words])
    code = run(app)
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1, output.err
    return code, output.err.strip()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["compare"], "Missing option '--policies'"),
        (["simulate", "--bogus"], "see fairlead simulate --help [usage]"),
        (["simulat"], "Did you mean 'simulate'? [usage]"),
        (
            ["submit", "--gpus", "2"],
            "No such option: --gpus: did you mean --gang, the number of devices? [usage]",
        ),
        (["submit", "--num-gpus=2"], "--num-gpus: did you mean --gang"),
        (["submit", "--gres", "gpu:2"], "--gres: did you mean --gang"),
        (["jobs", "--gpus", "2"], "No such option: --gpus; see fairlead jobs --help [usage]"),
        (["simulate", "--round", "0"], "--round"),
        (["simulate", "--round", "inf"], "--round: out of range: expected 0.001 to 1e+10; see"),
        *(
            (["policy", "set", "--round", value], "--round: out of range: expected 0.001 to 1e+10")
            for value in ("nan", "inf", "-inf", "-1", "0", "1e11")
        ),
        (["limits", "set", "--requests-per-s", "nan"], "out of range: expected 1 or more"),
        (
            ["simulate", "--window", "1_0:20"],
            "--window: not a range of jobs: '1_0:20': expected A:B",
        ),
        (["simulate", "--window", "٣:٥"], "--window: not a range of jobs: '٣:٥': expected A:B"),
        (["trace", "generate", "--jobs", "many"], "see fairlead trace generate --help"),
        (["simulate", "--policy", "hadar:horizon-s=inf"], "horizon-s: bad value inf: expected"),
        (["simulate", "--policy", "gandiva-fair:gain=nan"], "expected a finite number"),
        (["simulate", "--mechanism", "gavel:min-interval-s=-1"], "expected 0 or more seconds"),
    ],
)
def test_a_usage_error_is_one_line_with_a_hint(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    hint: str,
) -> None:
    code, message = refused(monkeypatch, capsys, *words)
    assert code == 2
    assert message.startswith("fairlead: ")
    assert hint in message


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
def test_a_missing_length_is_refused_only_by_policies_that_need_it(
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
    code, message = refused(monkeypatch, capsys, *words, "--instance", str(instance))
    assert code == 1
    assert "instance.json: jobs[1].steps_left: " in message
    assert "job 'b'" in message
    del jobs[1]["deadline_s"]
    instance.write_text(json.dumps({"cluster": {"v100": 1}, "jobs": jobs}))
    snapshot_for(create_policy("cost-slo"), instance)
    snapshot_for(create_policy("max-min"), instance)


@pytest.mark.parametrize("json_", [[], ["--json"]])
def test_a_job_named_like_a_pair_is_refused(
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
    code, message = refused(monkeypatch, capsys, *words)
    assert code == 1
    assert "jobs: " in message
    assert "job 'a+b'" in message
    assert "the pair 'a' and 'b'" in message
    assert message.endswith("have the same name 'a+b': expected ids without + [input]")


def test_a_restore_cost_longer_than_a_round_gives_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", "--policy", "fifo", "--restore-cost", "400", "--round", "360", "--json"]
    monkeypatch.setattr(sys, "argv", ["fairlead", *words])
    assert run(app) == 0
    output = capsys.readouterr()
    assert output.err.startswith("--restore-cost: 400 s is not below the round of 360 s")
    assert output.err.count("\n") == 1
    assert '"unfinished":0' in output.out


def test_an_internal_error_is_one_line_and_its_traceback_is_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    faulty = typer.Typer()

    @faulty.command()
    def divide() -> None:
        raise ZeroDivisionError("by \x1b[2J nought")

    monkeypatch.setattr(sys, "argv", ["fairlead"])
    assert run(faulty) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "\x1b" not in message
    (kept,) = tmp_path.glob("fairlead-*.txt")
    assert str(kept) in message
    assert "in divide" in kept.read_text()


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    command = f"{sys.executable} -m fairlead policies --json > /dev/full 2> {errors}"
    assert os.waitstatus_to_exitcode(os.system(command)) == 1
    assert errors.read_text().startswith("fairlead: No space left on device")
    assert errors.read_text().count("\n") == 1


def test_names_are_printed_without_markup_and_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ["[/foo]", "[red]x[/red]", ":smile:", "\x1b[2Jgone", "a\nb"]
    table("names", ["name"], [[name] for name in names])
    output = capsys.readouterr().out
    assert [name for name in names[:3] if name not in output] == []
    assert "\\x1b[2Jgone" in output
    assert "a\\nb" in output
    assert printable("née [x]") == "née [x]"


def test_the_title_of_a_list_of_jobs_uses_the_singular_for_one_job() -> None:
    job = {
        "id": "j1",
        "name": "\x1b[31m",
        "tenant": "[/t]",
        "state": "queued",
        "devices": 0,
        "accelerators_held": {},
        "steps_done": 0.0,
        "total_steps": 5,
        "preemptions": 0,
        "lost_s": 0.0,
    }
    (drawn,) = jobs_table([job])
    assert str(drawn.title) == "1 job"
    assert (pluralise(0, "node"), pluralise(2, "node")) == ("0 nodes", "2 nodes")
    assert [*drawn.columns[1].cells] == ["\\x1b[31m"]


@pytest.mark.parametrize(
    "url", ["foo", "ftp://x", "http://127.0.0.1:99999", "http://:80", "http://[::1", ""]
)
def test_an_invalid_server_url_is_refused_before_a_request_is_sent(url: str) -> None:
    with pytest.raises(ServerError, match="bad address"):
        Client(url, "token")
