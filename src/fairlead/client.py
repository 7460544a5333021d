"""A client of a running scheduler: what the command line uses, and Python programs may.

```python
from fairlead.client import Client

server = Client.found()
job = server.submit(["python", "train.py"], workload="ResNet-50", steps=5000)
server.wait(job["id"])
```
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import client
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from fairlead.model.errors import FairleadError
from fairlead.tls import explain_untrusted_certificate

OVER = ("finished", "failed", "cancelled")
"""states that a job does not leave"""
_LOGIN = "login.json"
_IDLE_S = 2.0
_TRIES, _LONGEST_WAIT_S = 5, 10.0
"""when the server asks to be asked less often"""
_POLL_S = 0.3
_AWAY_S = 60.0
"""how long a server that is restarted may be away while somebody waits for a job"""
_SILENCE_S = 60.0
"""after which a stream of events is given up; the server says something every 15 s"""


class ServerError(FairleadError):
    """The server refused a request, with the code that it gave; or could not be reached."""

    code = "server"

    def __init__(self, message: str, code: str = "server") -> None:
        super().__init__(message)
        self.code = code


class UnreachableError(ServerError):
    """The server did not answer."""


class UntrustedError(ServerError):
    """The server's certificate is not accepted: what is wrong with it, and the fix."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem}; {fix}")
        self.problem, self.fix = problem, fix


class Client:
    """Speaks to one server."""

    def __init__(self, url: str, token: str) -> None:
        self._url = _address(url)
        self._token = token
        self._connection: client.HTTPConnection | None = None
        self._used_at = 0.0
        self._reached_before = False

    @classmethod
    def found(cls, data: Path | None = None) -> "Client":
        """Return the client that the environment, a login or the server's data describe."""
        data = data or Path(os.environ.get("FAIRLEAD_DATA", "~/.fairlead")).expanduser()
        login = _read(data / _LOGIN)
        server = _read(data / "server.json")
        url = os.environ.get("FAIRLEAD_URL") or login.get("url") or server.get("url")
        if not url:
            raise ServerError(
                "no server is known; start one with `fairlead serve`, or set FAIRLEAD_URL and"
                " FAIRLEAD_TOKEN"
            )
        token = os.environ.get("FAIRLEAD_TOKEN") or login.get("token")
        if not token:
            try:
                token = (data / "admin.token").read_text(encoding="ascii").strip()
            except OSError:
                raise ServerError(
                    f"no token for {url}; set FAIRLEAD_TOKEN or use `fairlead login`"
                ) from None
        return cls(url, token)

    @property
    def is_here(self) -> bool:
        """Whether the server is reached on this machine's loopback address."""
        return self._url.hostname in ("127.0.0.1", "::1", "localhost")

    def submit(self, command: Sequence[str], **settings: object) -> dict[str, Any]:
        """Submit a job, here unless ``directory`` says otherwise; return it with its id."""
        body: dict[str, object] = {"directory": os.getcwd(), **settings, "command": [*command]}
        made: dict[str, Any] = self.post("/v1/jobs", body)
        return made

    def job(self, job_id: str) -> dict[str, Any]:
        """Return a job as it stands."""
        found: dict[str, Any] = self.get(job_path(job_id))
        return found

    def wait(
        self,
        job_id: str,
        *,
        timeout_s: float | None = None,
        seen: Callable[[dict[str, Any]], object] | None = None,
    ) -> dict[str, Any]:
        """Return a job when it has ended; TimeoutError when that takes too long.

        A server that has answered before may be away for a minute, as when it is restarted.
        ``seen`` is called with the job as it stands each time that it has not ended yet.
        """
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        away_since = math.inf
        while True:
            try:
                found = self.job(job_id)
            except UnreachableError as error:
                away_since = min(away_since, time.monotonic())
                if not self._reached_before or time.monotonic() - away_since > _AWAY_S:
                    raise
                stands = f"not known to have ended: {error}"
            else:
                away_since = math.inf
                if found["state"] in OVER:
                    return found
                stands = f"still {found['state']}"
                if seen is not None:
                    seen(found)
            if time.monotonic() > until:
                raise TimeoutError(f"job {job_id} is {stands}")
            time.sleep(_POLL_S)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield what happens on the server, as it happens, until it stops.

        An event has ``event`` (job.submitted, job.changed, lease.started, lease.ended,
        server.stopping), ``at``, and for most ``job``.
        """
        connection = self._connect(_SILENCE_S)
        try:
            path = self._url.path.rstrip("/") + "/v1/events"
            connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}"})
            answer = connection.getresponse()
            if answer.status != 200:
                raise _refusal(answer.status, answer.read())
            while line := answer.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
        except (OSError, client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()

    def get(self, path: str, **query: object) -> Any:
        """Return what the server shows."""
        given = {key: value for key, value in query.items() if value is not None}
        return self.ask("GET", path + (f"?{urlencode(given)}" if given else ""))

    def post(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Have the server do something."""
        return self.ask("POST", path, body)

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Return the answer's JSON, None without a body; ServerError says why it was refused."""
        _, text = self.text(method, path, body)
        return json.loads(text) if text else None

    def text(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> tuple[Mapping[str, str], bytes]:
        """Return headers and body of an answer; ServerError says why it was refused."""
        status, headers, text = self.raw(method, path, body)
        for _ in range(_TRIES):
            if status != 429:
                break
            time.sleep(min(float(headers.get("retry-after", 1)), _LONGEST_WAIT_S))
            status, headers, text = self.raw(method, path, body)
        if status >= 400:
            raise _refusal(status, text)
        return headers, text

    def raw(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body of an answer."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        if time.monotonic() - self._used_at > _IDLE_S:
            self.close()  # the server may be about to close it
        self._used_at = time.monotonic()
        try:
            if self._connection is None:
                self._connection = self._connect(30.0)
            self._connection.request(
                method,
                self._url.path.rstrip("/") + path,
                None if body is None else json.dumps(body),
                headers,
            )
            answer = self._connection.getresponse()
            found = {name.lower(): value for name, value in answer.headers.items()}
            text = answer.read()
            self._reached_before = True
            return answer.status, found, text
        except (OSError, client.HTTPException) as error:
            self.close()
            raise self._unreachable(error) from None

    def _connect(self, timeout_s: float) -> client.HTTPConnection:
        kind = client.HTTPSConnection if self._url.scheme == "https" else client.HTTPConnection
        return kind(self._url.hostname or "", self._url.port, timeout=timeout_s)

    def _unreachable(self, error: Exception) -> ServerError:
        where = f"{self._url.scheme}://{self._url.netloc}"
        if found := explain_untrusted_certificate(error, self._url.hostname or ""):
            problem, fix = found
            return UntrustedError(f"{where}: {problem}", fix)
        return UnreachableError(f"{where} does not answer ({error}); is the server up?")

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _address(url: str) -> SplitResult:
    """Return the parts of a server's address, or say how one is written."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port beyond all ports, a bracket too few
        usable = False
    if not usable:
        raise ServerError(f"{url!r} is no server's address; give http://127.0.0.1:8642")
    return parts


def _refusal(status: int, text: bytes) -> ServerError:
    """Return why a request was refused, in the server's words if they can be read."""
    try:
        told = json.loads(text)["error"]
        return ServerError(str(told["message"]), str(told["code"]))
    except (ValueError, KeyError, TypeError):
        return ServerError(f"the server answered {status}")


def job_path(job_id: str, *rest: str) -> str:
    """Return the path of a job, whatever characters its id has."""
    if not job_id:
        raise ServerError("a job's id is empty; `fairlead jobs` lists those there are")
    return "/".join(("/v1/jobs", quote(job_id, safe=""), *rest))


def _read(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
