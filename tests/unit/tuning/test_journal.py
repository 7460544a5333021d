"""Journal and controller of a search: kills, other files, a server that is away."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fairlead.client import Client, UnreachableError
from fairlead.model.errors import InputError
from fairlead.model.submission.new_job import NewJob
from fairlead.model.submission.search import Choices, Search
from fairlead.submitted_job import SubmittedJob
from fairlead.tuning.controller import Controller
from fairlead.tuning.journal import Journal, Trial

SEARCH = Search(name="s", metric="m", space={"h": Choices((0, 1))}, trials=2, strategy="none")


def test_a_journal_resumes_after_a_kill_during_its_first_or_last_line(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    made = Journal.create(path, SEARCH, ("train",))
    made.add(Trial(0, {"h": 1}))
    made.close()
    first, second = path.read_bytes().splitlines(keepends=True)
    for written in (b"", first[:9], first[:-1], first):
        path.write_bytes(written)
        Journal.resume(path, SEARCH, ("train",)).close()
        assert path.read_bytes().endswith(b"\n")
        resumed = Journal.resume(path, SEARCH, ("train",))
        assert not resumed.trials
        resumed.close()
    path.write_bytes(first + second + b'{"trial": 1, "po')
    resumed = Journal.resume(path, SEARCH, ("train",))
    assert [*resumed.trials] == [0]
    resumed.close()
    assert path.read_bytes() == first + second


@pytest.mark.parametrize(
    "text", ["notes", "notes\nmore", "[1]\n", '{"a": 1}\n', '{"search_id": "x", "search": 3}\n']
)
def test_another_file_is_no_journal_and_stays_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes"
    path.write_text(text)
    with pytest.raises(InputError, match=r"journal: .*notes is damaged"):
        Journal.resume(path, SEARCH, ("train",))
    assert path.read_text() == text


class _DyingServer(Client):
    """Answers the first request and dies at each first submission of a trial; its jobs finish."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9", "token")
        self.submitted: list[str] = []
        self.refused: set[str] = set()

    def jobs(self, **_: Any) -> list[SubmittedJob]:
        done = {"state": "finished", "steps_done": 1.0, "device_hours": 0.5, "weight": 1.0}
        return [SubmittedJob({"id": key, "metrics": {}, **done}) for key in self.submitted]

    def post(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        key = str((body or {})["idempotency_key"])
        if key not in self.refused:
            self.refused.add(key)
            raise UnreachableError("the server is away")
        self.submitted.append(key)
        return {"id": key, "path": path}


def test_a_search_waits_for_a_server_that_dies_during_its_first_submissions(
    tmp_path: Path,
) -> None:
    server = _DyingServer()
    journal = Journal.create(tmp_path / "s.jsonl", SEARCH, ("train", "{h}"))
    job = NewJob(command=("train", "{h}"), directory="/")
    result = Controller(server, SEARCH, job, journal, poll_s=0.0).run()
    journal.close()
    assert result.reason == "all trials have ended"
    assert [trial.job for trial in result.trials] == server.submitted
    assert (len(server.submitted), result.device_hours) == (2, 1.0)
