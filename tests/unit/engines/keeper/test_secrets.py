"""Secrets in a keeper: requests to the server, and their removal from logs."""

import http.server
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.attacks.hostile import order

from fairlead.engines.keeper import secrets as keeper_secrets
from fairlead.engines.keeper.keeper import Keeper
from fairlead.engines.keeper.launch_failure import LaunchFailedError
from fairlead.engines.keeper.secrets import Redactor, fetch_secrets
from fairlead.engines.keeper.start import KILL_SIGNAL


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Give this process its signal handlers back, which a keeper has replaced."""
    numbers = signal.SIGTERM, signal.SIGINT, signal.SIGALRM, KILL_SIGNAL
    handlers = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100])
def test_values_are_redacted_across_chunks(size: int) -> None:
    values = ["abcdefgh", "abcdefghij-longer", "key line 1\nkey line 2\n", "short"]
    text = (
        b"x abcdefgh y abcdefghij-longer\nabcdefghij-lon\nkey line 1\r\nkey line 2 short"
        b" abcabcdefgh key line 1abcdefg"
    )
    redactor, seen = Redactor(values), b""
    for at in range(0, len(text), size):
        seen += redactor.feed(text[at : at + size])
    seen += redactor.finish()
    assert seen == b"x *** y ***\n***ij-lon\n***\r\n*** short abc*** ***abcdefg"


def test_output_that_is_no_secret_is_passed_on_at_once() -> None:
    redactor = Redactor(["abcdefgh"])
    assert redactor.feed(b"step 10\nabc") == b"step 10\n"
    assert redactor.feed(b"\n") == b"abc\n"


class RefusingServer(http.server.BaseHTTPRequestHandler):
    """Answers with a status and a body that a test chooses."""

    status, body, requests = 500, b"{}", 0

    def do_POST(self) -> None:
        type(self).requests += 1
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


class Clock:
    """Time that passes only while the keeper sleeps."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(keeper_secrets, "time", Clock())
    monkeypatch.setattr(keeper_secrets, "_TIMEOUT_S", 60.0)
    RefusingServer.requests = 0
    with http.server.HTTPServer(("127.0.0.1", 0), RefusingServer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "body", "ending", "retried"),
    [
        (500, b"{}", "lost", True),
        (503, b"not JSON: s3cr3t-value", "lost", True),
        (429, b"[]", "lost", True),
        (409, b'{"error": {"message": "lease 5: already ended"}}', "lost", False),
        (404, b'{"error": {"message": "no secret"}}', "failed", False),
        (200, b'{"values": {"OTHER": "x"}}', "lost", False),
        (200, b'{"values": 3}', "lost", False),
    ],
)
def test_a_keeper_without_an_answer_ends_its_lease(
    tmp_path: Path, refusing: str, status: int, body: bytes, ending: str, retried: bool
) -> None:
    RefusingServer.status, RefusingServer.body = status, body
    environment = {"FAIRLEAD_URL": refusing, "FAIRLEAD_JOB_TOKEN": "t"}
    ordered = order(tmp_path, secrets={"TOKEN": "TOKEN"}, environment=environment)
    with pytest.raises(LaunchFailedError) as failure:
        fetch_secrets(ordered, lambda: True)
    assert failure.value.ending == ending
    assert "s3cr3t" not in str(failure.value)
    assert (RefusingServer.requests > 100) == retried


@pytest.mark.usefixtures("own_signals")
def test_an_unreachable_server_is_a_failure_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_secrets, "_MAX_WAIT_S", 0.0)
    environment = {"FAIRLEAD_URL": "http://127.0.0.1:1", "FAIRLEAD_JOB_TOKEN": "t"}
    ordered = order(tmp_path, secrets={"TOKEN": "TOKEN"}, environment=environment)
    ended = Keeper(tmp_path, ordered).run()
    assert ended.ending == "lost"
    assert "http://127.0.0.1:1 does not answer" in ended.message


def test_a_stop_request_ends_the_wait_for_secrets(tmp_path: Path) -> None:
    environment = {"FAIRLEAD_URL": "http://127.0.0.1:1", "FAIRLEAD_JOB_TOKEN": "t"}
    ordered = order(tmp_path, secrets={"TOKEN": "TOKEN"}, environment=environment)
    answers = iter([True, False])
    assert fetch_secrets(ordered, lambda: next(answers)) == {}
