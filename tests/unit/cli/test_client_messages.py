"""Messages of commands about servers, times and questions."""

import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.cli.main import app
from fairlead.cli.shared.confirmation import confirm
from fairlead.cli.shared.errors import run
from fairlead.cli.shared.output import local_time
from fairlead.client import Client, ServerError
from fairlead.model.errors import UsageError


def test_unknown_server_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRLEAD_URL", raising=False)
    monkeypatch.setenv("FAIRLEAD_DATA", str(tmp_path))
    with pytest.raises(ServerError, match="no server is known") as caught:
        Client.from_environment()
    for name in (str(tmp_path), "FAIRLEAD_DATA", "fairlead login", "FAIRLEAD_URL"):
        assert name in str(caught.value)


def test_times_name_their_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert local_time(0.0) == "1970-01-01 09:00:00 JST"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_question_that_nobody_can_answer_needs_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    confirm("remove?", yes=True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(UsageError, match="expected --yes"):
        confirm("remove?", yes=False)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        *(
            (f"nodes {command}", "node id: empty: see `fairlead nodes` for the ids")
            for command in (
                *("cordon ''", "drain ''", "return ''", "restore ''", "remove '' --yes"),
                "mig '' 0 none",
            )
        ),
        ("tenants remove '' --yes", "tenant id: empty: see `fairlead tenants` for the ids"),
        ("tenants set ''", "tenant: empty: expected an id such as vision"),
        ("explain '' --tenant", "tenant id: empty: see `fairlead tenants` for the ids"),
        ("explain ''", "job id: empty: see `fairlead jobs` for the ids"),
        *(
            (f"{command} ''", "job id: empty: see `fairlead jobs` for the ids")
            for command in ("job", "logs", "cancel", "suspend", "resume")
        ),
        ("priority '' 5", "job id: empty: see `fairlead jobs` for the ids"),
        ("tokens rotate ''", "token id: empty: see `fairlead tokens` for the ids"),
        ("tokens revoke ''", "token id: empty: see `fairlead tokens` for the ids"),
        ("secret set ''", "secret: empty: expected a name such as HF_TOKEN"),
        ("secret remove ''", "secret: empty: expected a name such as HF_TOKEN"),
    ],
)
def test_an_empty_name_is_refused_before_a_request_is_sent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    monkeypatch.setenv("FAIRLEAD_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("FAIRLEAD_TOKEN", "x")
    monkeypatch.setattr(sys, "argv", ["fairlead", *shlex.split(line)])
    assert run(app) in (1, 2)
    assert capsys.readouterr().err.startswith(f"fairlead: {message} [")


@pytest.mark.parametrize("watch", [[], ["--watch"]])
@pytest.mark.parametrize(
    ("sort", "warning"),
    [
        ("los", "--sort: none of these jobs has reported a metric 'los': expected one of loss\n"),
        ("loss", ""),
    ],
)
def test_a_metric_that_no_job_has_reported_gives_a_warning(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    watch: list[str],
    sort: str,
    warning: str,
) -> None:
    monkeypatch.setenv("FAIRLEAD_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("FAIRLEAD_TOKEN", "x")
    monkeypatch.setattr(Client, "get", lambda *_, **__: [{"id": "j1", "metrics": {"loss": 1.0}}])
    followed: list[str | None] = []

    def follow(_: Client, listed: Callable[[], object], *, metric: str | None) -> None:
        listed()
        followed.append(metric)

    monkeypatch.setattr("fairlead.cli.client.watch.follow", follow)
    monkeypatch.setattr("fairlead.cli.client.watch.jobs_table", lambda *_, **__: [])
    monkeypatch.setattr(sys, "argv", ["fairlead", "jobs", "--sort", sort, *watch])
    assert run(app) == 0
    assert followed == ([sort] if watch else [])
    assert capsys.readouterr().err == warning
