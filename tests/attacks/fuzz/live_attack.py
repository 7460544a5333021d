"""Attacks on a real server: hostile requests, and hostile jobs under real keepers."""

import http.client
import json
import sys
import time
from pathlib import Path
from random import Random

from tests.attacks.fuzz.messages import NEW_JOB, Request, hostile_request
from tests.e2e.support.live_server import LiveServer
from tests.support.waiting import until

from fairlead.client import Client

_REPOSITORY = Path(__file__).parents[3]
_LIMIT_S = 30.0
"""seconds in which each request is answered"""
_ERRORS = frozenset({400, 401, 403, 404, 405, 408, 409, 411, 413, 414, 415, 422, 429, 431})
_HOSTILE_JOB = f"""
import os, random, sys
from pathlib import Path
sys.path.insert(0, {str(_REPOSITORY)!r})
from tests.attacks.fuzz.files import CHECKPOINT_FILES, LEASE_FILES, LOG_FILES, hostile_file

rng, data = random.Random(sys.argv[1]), Path(sys.argv[2])
checkpoint = Path(os.environ["FAIRLEAD_CHECKPOINT_DIR"])
lease = data / "leases" / os.environ["FAIRLEAD_LEASE"]
places = [(checkpoint, CHECKPOINT_FILES), (checkpoint.parent / "logs", LOG_FILES)]
places += [(lease, [name for name in LEASE_FILES if name != "order.json"])]
for directory, names in places:
    for name in names:
        if rng.random() < 0.5:
            try:
                hostile_file(rng, directory / name)
            except OSError as error:
                print(error)
status = os.environ.get("FAIRLEAD_STATUS_FILE")
if status and rng.random() < 0.5:
    hostile_file(rng, Path(status))
os.write(1, rng.randbytes(5000))
sys.exit(rng.choice((0, 1, 3, 75, 255)))
"""


class LiveAttack:
    """A server with a victim's jobs and an attacker's requests and jobs."""

    def __init__(self, root: Path) -> None:
        self.server = LiveServer(root, devices="v100=2,k80=2", round_s=2.0)
        self.server.extra = ("--trust-jobs", "--requests-per-s", "1000000")
        try:
            self._prepare()
        except BaseException:
            self.server.clean_up()
            raise

    def _prepare(self) -> None:
        root = self.server.root
        self.server.start()
        self._tokens = {"admin": (self.server.data / "admin.token").read_text()}
        for tenant in ("alice", "mallory"):
            made = self.server.client.post(
                "/v1/tokens", {"name": tenant, "role": "tenant", "tenant": tenant}
            )
            self._tokens[tenant] = made["token"]
        self._victim = self._client("alice")
        (root / "hostile_job.py").write_text(_HOSTILE_JOB)
        self._attacker = self._client("mallory")
        self._jobs = [self._attacker.post("/v1/jobs", {**NEW_JOB, "name": "m"})["id"]]

    def _client(self, user: str) -> Client:
        return Client(f"http://127.0.0.1:{self.server.port}", self._tokens[user])

    def submit_victim(self, steps: int = 40) -> str:
        """Submit a job of another tenant; return its id."""
        result = self.server.root / f"result-{time.monotonic_ns()}"
        script = str(self.server.root / "train.py")
        command = [sys.executable, script, str(steps), str(result)]
        body = {"command": command, "workload": "small", "steps": steps}
        return str(self._victim.post("/v1/jobs", body)["id"])

    def check_victim(self, job: str, steps: int = 40) -> None:
        """Wait for a job of another tenant, which must make exactly its steps."""
        until(lambda: self._victim.get(f"/v1/jobs/{job}")["state"] not in _UNENDED)
        view = self._victim.get(f"/v1/jobs/{job}")
        assert view["state"] == "finished", view
        assert view["steps_done"] == steps, view

    def submit_hostile_job(self, name: str) -> None:
        """Start a job that fills its directories with hostile files."""
        script = str(self.server.root / "hostile_job.py")
        command = [sys.executable, script, name, str(self.server.data)]
        body = {"command": command, "workload": "small", "retries": 1, "grace_s": 1.0}
        self._jobs.append(self._attacker.post("/v1/jobs", body)["id"])

    def send(self, rng: Random) -> None:
        """Send one hostile request; its answer must be in time and of the documented shape."""
        request = hostile_request(rng, rng.choice(self._jobs))
        status, body = self._exchange(request)
        described = f"{request.method} {request.path[:200]} {(request.body or b'')[:300]!r}"
        assert status < 500, f"{status} {body[:500]!r}: {described}"
        if status < 400:
            self._clean_up_after(request, body)
            return
        assert status in _ERRORS, f"{status}: {described}"
        answer = json.loads(body)
        assert isinstance(answer.get("error"), dict), f"{body[:500]!r}: {described}"
        assert answer["error"].keys() >= {"code", "message"}, f"{body[:500]!r}: {described}"

    def _exchange(self, request: Request) -> tuple[int, bytes]:
        token = self._tokens["admin" if request.as_admin else "mallory"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=_LIMIT_S)
        try:
            connection.request(request.method, request.path, request.body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _clean_up_after(self, request: Request, body: bytes) -> None:
        if request.method == "POST" and request.path == "/v1/jobs":
            job = json.loads(body)["id"]
            self.server.client.post(f"/v1/jobs/{job}/cancel?force=true", {})

    def check_end(self) -> None:
        """Require that the server answers, all attacker's jobs end, and no device is leaked."""
        admin = self.server.client
        for job in self._jobs:
            if admin.get(f"/v1/jobs/{job}")["state"] == "suspended":
                admin.post(f"/v1/jobs/{job}/resume", {})
        until(lambda: all(j["state"] not in _UNENDED for j in admin.get("/v1/jobs")))
        until(lambda: all(node["busy"] == 0 for node in admin.get("/v1/nodes")))
        for path in ("/healthz", "/readyz"):
            status, _, body = admin.raw("GET", path)
            assert status == 200, body

    def close(self) -> None:
        """Stop the server."""
        self._victim.close()
        self._attacker.close()
        self.server.clean_up()


_UNENDED = ("queued", "running", "suspended")
