"""A server without a scheduler that only renews leases, for tests of the job library."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class LeaseServer:
    """Answers renewals and decides when a lease must leave, as the real server does."""

    def __init__(self) -> None:
        self.leave_from: dict[int, int] = {}
        """lease → number of steps from which on it must leave"""
        self.ended: set[int] = set()
        self.unreachable_for: set[int] = set()
        """ranks that get status 503, as if they could not reach the server"""
        self.valid_s = 0.4
        self.renewals: list[dict[str, Any]] = []
        self._final_steps: dict[int, dict[int, int]] = {}
        self.world_size = 1
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                lease = int(self.path.split("/")[3])
                assert self.headers["Authorization"] == "Bearer secret"
                status, answer = outer.answer(lease, body)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, lease: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if body["rank"] in self.unreachable_for:
            return 503, {}
        self.renewals.append({"lease": lease, **body})
        if lease in self.ended:
            return 409, {}
        from_steps = self.leave_from.get(lease)
        if from_steps is None or (body["steps"] < from_steps and not self._final_steps.get(lease)):
            return 200, {"valid_s": self.valid_s, "leave": False, "leave_after": None}
        final = self._final_steps.setdefault(lease, {})
        if body["leaving"]:
            final[body["rank"]] = body["started"]
        after = max(final.values()) if len(final) == self.world_size else None
        return 200, {"valid_s": self.valid_s, "leave": True, "leave_after": after}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
