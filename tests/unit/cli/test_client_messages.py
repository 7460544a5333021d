"""Messages of commands about servers, times and questions."""

import time
from pathlib import Path

import pytest

from fairlead.cli.shared.confirmation import confirm
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
