"""The client while the server restarts."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from fairlead.client import Client

STOPPING = {"error": {"code": "stopping", "message": "the server is stopping", "field": None}}


class StoppingServer(HTTPServer):
    """Stops during the first request, and answers later ones with a job."""

    keys: list[str]

    class Handler(BaseHTTPRequestHandler):
        server: "StoppingServer"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.server.keys.append(body["idempotency_key"])
            self.do_GET()

        def do_GET(self) -> None:
            stops = len(self.server.keys) == 1
            if stops:
                self.server.keys.append("")
            text = json.dumps(STOPPING if stops else {"id": "j1", "state": "finished"}).encode()
            self.send_response(503 if stops else 200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Print nothing."""


@pytest.fixture
def server() -> Iterator[StoppingServer]:
    with StoppingServer(("127.0.0.1", 0), StoppingServer.Handler) as server:
        server.keys = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_submission_that_a_stop_interrupts_is_sent_again(server: StoppingServer) -> None:
    with closing(Client(f"http://127.0.0.1:{server.server_port}", "token")) as client:
        assert client.post_once("/v1/jobs", {})["id"] == "j1"
    first, _, second = server.keys
    assert first == second


def test_waiting_continues_after_a_stop(server: StoppingServer) -> None:
    server.keys = ["wait"]
    with closing(Client(f"http://127.0.0.1:{server.server_port}", "token")) as client:
        assert client.wait("j1", timeout_s=30)["state"] == "finished"
