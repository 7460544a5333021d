"""How commands reach the server: its address and a token, from the environment or its data."""

import json
import os
from collections.abc import Mapping
from http import client
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from fairlead.model.errors import FairleadError

_LOGIN = "login.json"


class ServerError(FairleadError):
    """The server refused a request, or could not be reached."""

    code = "server"


class Client:
    """Speaks to one server."""

    def __init__(self, url: str, token: str) -> None:
        self._url = urlsplit(url)
        self._token = token
        self._connection: client.HTTPConnection | None = None

    @classmethod
    def found(cls) -> "Client":
        """Return the client that the environment, a login or the server's data describe."""
        data = Path(os.environ.get("FAIRLEAD_DATA", "~/.fairlead")).expanduser()
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

    def get(self, path: str, **query: object) -> Any:
        """Return what the server shows."""
        given = {key: value for key, value in query.items() if value is not None}
        return self.ask("GET", path + (f"?{urlencode(given)}" if given else ""))

    def post(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Have the server do something."""
        return self.ask("POST", path, body)

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Return the answer's JSON, None without a body; ServerError says why it was refused."""
        status, _, text = self.raw(method, path, body)
        found = json.loads(text) if text else None
        if status < 400:
            return found
        problem = (found or {}).get("error", {})
        raise ServerError(str(problem.get("message") or f"the server answered {status}"))

    def raw(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body of an answer."""
        kind = client.HTTPSConnection if self._url.scheme == "https" else client.HTTPConnection
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            if self._connection is None:
                self._connection = kind(self._url.hostname or "", self._url.port, timeout=30)
            self._connection.request(
                method,
                self._url.path.rstrip("/") + path,
                None if body is None else json.dumps(body),
                headers,
            )
            answer = self._connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        except (OSError, client.HTTPException) as error:
            self._connection = None
            where = f"{self._url.scheme}://{self._url.netloc}"
            raise ServerError(f"{where} does not answer ({error}); is the server up?") from None


def job_path(job_id: str, *rest: str) -> str:
    """Return the path of a job, whatever characters its id has."""
    return "/".join(("/v1/jobs", quote(job_id, safe=""), *rest))


def _read(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
