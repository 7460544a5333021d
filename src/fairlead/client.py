"""A client of a running server, for the command line and for Python programs.

```python
from fairlead.client import Client

server = Client.from_environment()
rates = [0.1, 0.01]
jobs = [server.submit(["python", "train.py", f"--lr={lr}"], steps=5000) for lr in rates]
for job in server.wait_all([job.id for job in jobs]):
    print(job.id, job.state, job.metrics)
```
"""

import json
import math
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import client
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fairlead.code_snapshot.packing import PackedCode, pack
from fairlead.model.submission.batch import check_size, divide_fields
from fairlead.server_address import job_path, parse_address
from fairlead.server_error import (
    ServerError,
    UnreachableError,
    UntrustedCertificateError,
    error_of,
)
from fairlead.submitted_job import ENDED_STATES, ChangedJobs, SubmittedJob
from fairlead.tls import explain_untrusted_certificate

__all__ = [
    "OVER",
    "TERMINAL_STATES",
    "Client",
    "ServerError",
    "UnreachableError",
    "UntrustedCertificateError",
    "UntrustedError",
    "job_path",
]
TERMINAL_STATES = OVER = ENDED_STATES
"""states that a job does not leave; ``OVER`` is the earlier name"""
UntrustedError = UntrustedCertificateError
"""earlier name"""
_LOGIN = "login.json"
_MAX_IDLE_S = 2.0
"""age after which a connection is not used again"""
_MAX_RETRIES, _MAX_RETRY_S = 5, 10.0
"""limits for retries after status 429"""
_POLL_S = 0.3
_RECONNECT_S = 60.0
_PART_BYTES = 1 << 20
"""size of the parts in which a code snapshot is uploaded"""
_SILENCE_S = 60.0
"""timeout of a stream of events; the server sends something every 15 s"""


class Client:
    """A client of one server.

    Submissions and ``wait`` tolerate a server that was reached and does not answer for
    ``reconnect_s`` seconds, as during a restart.
    """

    def __init__(self, url: str, token: str, *, reconnect_s: float = _RECONNECT_S) -> None:
        self._url = parse_address(url)
        self._token, self._reconnect_s = token, reconnect_s
        self._connection: client.HTTPConnection | None = None
        self._used_at = 0.0
        self._reached_before = False

    @classmethod
    def from_environment(cls, data: Path | None = None) -> "Client":
        """Return the client for the environment variables, the login or the server's data."""
        data = data or Path(os.environ.get("FAIRLEAD_DATA", "~/.fairlead")).expanduser()
        login = _read(data / _LOGIN)
        server = _read(data / "server.json")
        url = os.environ.get("FAIRLEAD_URL") or login.get("url") or server.get("url")
        if not url:
            raise ServerError(
                f"no server is known: {data} has no server.json and no login: start a server with"
                " `fairlead serve`, use `fairlead login`, set FAIRLEAD_DATA to the data directory"
                " of a server on this machine, or set FAIRLEAD_URL and FAIRLEAD_TOKEN"
            )
        token = os.environ.get("FAIRLEAD_TOKEN") or login.get("token")
        if not token:
            try:
                token = (data / "admin.token").read_text(encoding="ascii").strip()
            except OSError:
                raise ServerError(
                    f"token: missing for {url}: set FAIRLEAD_TOKEN or use `fairlead login`"
                ) from None
        return cls(url, token)

    found = from_environment  # lang: ok
    """earlier name"""

    @property
    def url(self) -> str:
        """The server's address."""
        return self._url.geturl()

    @property
    def is_here(self) -> bool:
        """True if the server has this machine's loopback address."""
        return self._url.hostname in ("127.0.0.1", "::1", "localhost")

    def submit(self, command: Sequence[str], **settings: object) -> SubmittedJob:
        """Submit a job and return it with its id; ``directory`` defaults to the current one.

        With ``snapshot=True`` it runs in a copy of the directory as it is now.
        """
        snapshot = settings.pop("snapshot", False)
        body: dict[str, object] = {"directory": os.getcwd(), **settings, "command": [*command]}
        if snapshot:
            tenant = settings.get("tenant")
            code = self.upload_code(
                str(body["directory"]), tenant=None if tenant is None else str(tenant)
            )
            body |= {"code_snapshot": code.digest, "code_commit": code.commit}
            body["code_dirty"] = code.is_dirty
        return SubmittedJob(self.post_once("/v1/jobs", body))

    def submit_all(
        self, jobs: Sequence[Mapping[str, object]], *, idempotency_key: str = ""
    ) -> list[SubmittedJob]:
        """Submit several jobs, all or none and none twice, each by its fields; see the REST API.

        One may wait for another of them by its name: ``{"after": ["prepare"]}``.
        """
        check_size(len(jobs))
        common, own = divide_fields([{"directory": os.getcwd(), **job} for job in jobs])
        body = {"jobs": own, "common": common, "idempotency_key": idempotency_key}
        return [SubmittedJob(job) for job in self.post_once("/v1/jobs/batch", body)]

    def upload_code(self, directory: str, *, tenant: str | None = None) -> PackedCode:
        """Upload a directory as a code snapshot, unless the server has it; return its id."""
        owner = {} if tenant is None else {"tenant": tenant}
        limits = self.get("/v1/code-snapshots", **owner)
        with tempfile.TemporaryFile() as file:
            code = pack(Path(directory), file, limits["max_bytes"])
            path = f"/v1/code-snapshots/{code.digest}"
            if self.raw("GET", f"{path}?{urlencode(owner)}")[0] == 200:
                return code
            file.seek(0)
            offset = 0
            while part := file.read(_PART_BYTES):
                query = urlencode({"offset": offset, "size": code.size, **owner})
                self.text("PUT", f"{path}?{query}", part)
                offset += len(part)
        return code

    def job(self, job_id: str) -> SubmittedJob:
        """Return a job's current state."""
        return SubmittedJob(self.get(job_path(job_id)))

    def jobs(
        self,
        *,
        state: str | None = None,
        tenant: str | None = None,
        name: str | None = None,
        multijob: str | None = None,
        unended: bool = False,
        last: int = 10_000,
    ) -> list[SubmittedJob]:
        """Return the newest ``last`` jobs, oldest first; ``name`` is a pattern such as ``lr-*``.

        With ``unended`` only jobs that have not ended.
        """
        filters = {"state": state, "tenant": tenant, "name": name, "multijob": multijob}
        answer = self.get("/v1/jobs", **filters, unended=unended, limit=last, newest=True)
        return [SubmittedJob(job) for job in answer]

    def cancel(self, job_id: str, *, force: bool = False) -> SubmittedJob:
        """Cancel a job; with ``force``, kill its processes at once."""
        return self._act(job_id, "cancel?force=true" if force else "cancel")

    def suspend(self, job_id: str) -> SubmittedJob:
        """Suspend a job: it checkpoints and releases its devices."""
        return self._act(job_id, "suspend")

    def resume(self, job_id: str) -> SubmittedJob:
        """Resume a suspended job."""
        return self._act(job_id, "resume")

    def set_priority(self, job_id: str, priority: int) -> SubmittedJob:
        """Set a job's priority."""
        return SubmittedJob(self.ask("PATCH", job_path(job_id), {"priority": priority}))

    def change_all(self, action: str, job_ids: Sequence[str], **settings: object) -> ChangedJobs:
        """Cancel, suspend, resume or change several jobs, all or none; see the REST API."""
        check_size(len(job_ids))
        body = {"action": action, "jobs": [*job_ids], **settings}
        return ChangedJobs.of(self.post("/v1/jobs/changes", body))

    def _act(self, job_id: str, action: str) -> SubmittedJob:
        return SubmittedJob(self.post(job_path(job_id, action)))

    def logs(self, job_id: str, *, rank: int = 0) -> str:
        """Return the output of one rank of a job so far, over all of its leases."""
        parts: list[bytes] = []
        after = 0
        while True:
            text, after = self.read_logs(job_id, rank=rank, after=after)
            if not text:
                return b"".join(parts).decode(errors="replace")
            parts.append(text)

    def read_logs(self, job_id: str, *, rank: int = 0, after: int = 0) -> tuple[bytes, int]:
        """Return the next part of a job's output from a byte on, and the ``after`` behind it."""
        query = urlencode({"rank": rank, "after": after})
        headers, text = self.text("GET", job_path(job_id, "logs") + f"?{query}")
        return text, int(headers.get("fairlead-next", after))

    def wait_all(
        self, job_ids: Sequence[str], *, timeout_s: float | None = None
    ) -> list[SubmittedJob]:
        """Return jobs once all have ended; TimeoutError if that takes too long."""
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        ended = []
        for job_id in job_ids:
            left = None if timeout_s is None else max(until - time.monotonic(), 0.0)
            ended.append(self.wait(job_id, timeout_s=left))
        return ended

    def wait(
        self,
        job_id: str,
        *,
        timeout_s: float | None = None,
        seen: Callable[[SubmittedJob], object] | None = None,
    ) -> SubmittedJob:
        """Return a job once it has ended; TimeoutError if that takes too long.

        ``seen`` is called with the job after each poll at which it has not ended.
        """
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        unreachable_since = math.inf
        while True:
            try:
                job = self.job(job_id)
            except UnreachableError as error:
                unreachable_since = min(unreachable_since, time.monotonic())
                if not self._reached_before or self._is_too_long(unreachable_since):
                    raise
                status = f"not known to have ended: {error}"
            else:
                unreachable_since = math.inf
                if job["state"] in TERMINAL_STATES:
                    return job
                status = f"still {job['state']}"
                if seen is not None:
                    seen(job)
            if time.monotonic() > until:
                raise TimeoutError(f"job {job_id} is {status}")
            time.sleep(_POLL_S)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the server's events as they occur, until it stops.

        An event has ``event`` (job.submitted, job.changed, lease.started, lease.ended,
        server.stopping), ``at``, and in most cases ``job``.
        """
        connection = self._connect(_SILENCE_S)
        try:
            path = self._url.path.rstrip("/") + "/v1/events"
            connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}"})
            answer = connection.getresponse()
            if answer.status != 200:
                raise error_of(answer.status, answer.read())
            while line := answer.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
        except (OSError, client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()

    def get(self, path: str, **query: object) -> Any:
        """Send a GET request and return the answer."""
        parameters = {key: value for key, value in query.items() if value is not None}
        return self.ask("GET", path + (f"?{urlencode(parameters)}" if parameters else ""))

    def post(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Send a POST request and return the answer."""
        return self.ask("POST", path, body)

    def post_once(self, path: str, body: Mapping[str, object]) -> Any:
        """Submit jobs and return the answer; send the request again if the answer is lost.

        By its idempotency key, which it gets if it has none, the server recognises the jobs that
        it has already.
        """
        body = {**body, "idempotency_key": body.get("idempotency_key") or secrets.token_hex(16)}
        unreachable_since = math.inf
        while True:
            try:
                return self.post(path, body)
            except UnreachableError as error:
                unreachable_since = min(unreachable_since, time.monotonic())
                if not self._reached_before:
                    raise
                if self._is_too_long(unreachable_since):
                    doubt = "the submission may have arrived: see `fairlead jobs`"
                    raise UnreachableError(f"{error}; {doubt}") from None
            time.sleep(_POLL_S)

    def _is_too_long(self, unreachable_since: float) -> bool:
        return time.monotonic() - unreachable_since > self._reconnect_s

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Return the answer's JSON, None without a body; ServerError if it was rejected."""
        _, text = self.text(method, path, body)
        return json.loads(text) if text else None

    def text(
        self, method: str, path: str, body: Mapping[str, object] | bytes | None = None
    ) -> tuple[Mapping[str, str], bytes]:
        """Return headers and body of an answer; ServerError if it was rejected."""
        status, headers, text = self.raw(method, path, body)
        for _ in range(_MAX_RETRIES):
            if status != 429:
                break
            time.sleep(min(float(headers.get("retry-after", 1)), _MAX_RETRY_S))
            status, headers, text = self.raw(method, path, body)
        if status >= 400:
            raise error_of(status, text)
        return headers, text

    def raw(
        self, method: str, path: str, body: Mapping[str, object] | bytes | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body of an answer."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        if time.monotonic() - self._used_at > _MAX_IDLE_S:
            self.close()  # the server may be about to close the connection
        self._used_at = time.monotonic()
        try:
            if self._connection is None:
                self._connection = self._connect(30.0)
                self._connection.connect()
                self._reached_before = True
            self._connection.request(
                method,
                self._url.path.rstrip("/") + path,
                body if body is None or isinstance(body, bytes) else json.dumps(body),
                headers,
            )
            answer = self._connection.getresponse()
            answer_headers = {name.lower(): value for name, value in answer.headers.items()}
            text = answer.read()
            return answer.status, answer_headers, text
        except (OSError, client.HTTPException) as error:
            self.close()
            raise self._unreachable(error) from None

    def _connect(self, timeout_s: float) -> client.HTTPConnection:
        secure = self._url.scheme == "https"
        connect = client.HTTPSConnection if secure else client.HTTPConnection
        return connect(self._url.hostname or "", self._url.port, timeout=timeout_s)

    def _unreachable(self, error: Exception) -> ServerError:
        server = f"{self._url.scheme}://{self._url.netloc}"
        if explanation := explain_untrusted_certificate(error, self._url.hostname or ""):
            problem, fix = explanation
            return UntrustedCertificateError(f"{server}: {problem}", fix)
        return UnreachableError(f"{server} does not answer ({error}); is the server up?")

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _read(path: Path) -> dict[str, str]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
