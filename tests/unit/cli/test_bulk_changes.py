"""Commands that change several jobs."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from fairlead.cli.client import actions
from fairlead.cli.main import app
from fairlead.cli.shared.errors import run


class DyingServer(BaseHTTPRequestHandler):
    """Answers the request for j1 and j2, and closes the connection of every other one."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if request["jobs"] != ["j1", "j2"]:
            self.close_connection = True
            return
        rejected = [{"id": "j2", "code": "protocol", "message": "it has ended"}]
        answer = {"jobs": [{"id": "j1", "state": "cancelled"}], "rejected": rejected}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        pass


@pytest.mark.parametrize(("more", "out"), [([], "j1: cancelled\n"), (["--json"], "")])
def test_jobs_changed_before_the_server_dies_are_counted(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    out: str,
) -> None:
    monkeypatch.setattr(actions, "MAX_BATCH", 2)
    with HTTPServer(("127.0.0.1", 0), DyingServer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("FAIRLEAD_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("FAIRLEAD_TOKEN", "fl_0_0")
        monkeypatch.setattr("sys.argv", ["fairlead", "cancel", "j1", "j2", "j3", *more])
        assert run(app) == 1
        server.shutdown()
    printed = capsys.readouterr()
    assert printed.out == out
    assert "j2: it has ended [protocol]\n" in printed.err
    assert "changed 1 of 3 jobs\n" in printed.err
    assert "does not answer" in printed.err
