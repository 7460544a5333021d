"""Secrets of a job: the keeper fetches their values, and removes them from the job's log.

Values exist in the memory of the keeper and in the environments of the members only. An order
holds their names and the token of its lease; the server sends the values to open leases.
"""

import json
import re
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper.launch_failure import LaunchFailedError
from fairlead.engines.keeper.log_file import LogFile
from fairlead.tls import explain_untrusted_certificate

_TIMEOUT_S, _RETRY_S = 5.0, 0.5
_MAX_WAIT_S = 60.0
"""seconds for which an unreachable server is asked again"""
_MAX_ANSWER_BYTES = 16 << 20
_REDACTED = b"***"
_MIN_BYTES, _MAX_BYTES = 8, 4096
"""lengths of a line of a secret that is redacted; shorter ones occur by chance"""


def fetch_secrets(order: LaunchOrder, may_start: Callable[[], bool]) -> Mapping[str, str]:
    """Return environment variable → value of the secrets of an order.

    Retries while the server is unreachable and ``may_start`` returns True. Raises
    LaunchFailedError if the server refuses, or stays unreachable: that is the machine's failure.
    """
    if not order.secrets:
        return {}
    until = time.monotonic() + _MAX_WAIT_S
    while may_start():
        try:
            status, answer = _post(order)
        except (OSError, ValueError) as error:
            problem = _explain(order, error)
        else:
            if status == 200:
                return _values(order, answer)
            problem = _message(answer) or f"status {status}"
            if status == 404:  # removed since the job was submitted
                raise LaunchFailedError("failed", problem)
            if status in (401, 403, 409):  # the lease has ended
                raise LaunchFailedError("lost", problem)
        if time.monotonic() >= until:
            raise LaunchFailedError("lost", f"secrets cannot be fetched: {problem}")
        time.sleep(_RETRY_S)
    return {}


def _post(order: LaunchOrder) -> tuple[int, Any]:
    """Return status and content of the server's answer; raise OSError without one."""
    from http import client  # noqa: PLC0415  # slow to import; most jobs have no secrets

    url = urlsplit(order.environment.get("FAIRLEAD_URL", ""))
    token = order.environment.get("FAIRLEAD_JOB_TOKEN", "")
    connect = client.HTTPSConnection if url.scheme == "https" else client.HTTPConnection
    connection = connect(url.hostname or "", url.port, timeout=_TIMEOUT_S)
    try:
        connection.request(
            "POST",
            f"{url.path.rstrip('/')}/v1/leases/{order.lease}/secrets",
            headers={"Authorization": f"Bearer {token}"},
        )
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read(_MAX_ANSWER_BYTES))
    except client.HTTPException as error:
        raise OSError(f"{type(error).__name__}: {error}") from None
    finally:
        connection.close()


def _values(order: LaunchOrder, answer: Any) -> Mapping[str, str]:
    values = answer.get("values") if isinstance(answer, dict) else None
    if not isinstance(values, dict) or values.keys() != order.secrets.keys():
        raise LaunchFailedError("lost", "unexpected answer to the request for secrets")
    return {variable: str(value) for variable, value in values.items()}


def _message(answer: Any) -> str:
    error = answer.get("error") if isinstance(answer, dict) else None
    return str(error.get("message", "")) if isinstance(error, dict) else ""


def _explain(order: LaunchOrder, error: Exception) -> str:
    if isinstance(error, ValueError) and not isinstance(error, OSError):
        return "unreadable answer"  # its text may hold a part of the answer
    url = order.environment.get("FAIRLEAD_URL", "")
    explanation = explain_untrusted_certificate(error, urlsplit(url).hostname or "")
    return "; ".join(explanation) if explanation else f"{url} does not answer ({error})"


class Redactor:
    """Replaces the lines of secrets in a stream of output, also across chunks."""

    def __init__(self, values: Collection[str]) -> None:
        lines = {line.strip("\r").encode() for value in values for line in value.split("\n")}
        usable = (line for line in lines if _MIN_BYTES <= len(line) <= _MAX_BYTES)
        self._lines = sorted(usable, key=len, reverse=True)  # the longest match wins
        self._pattern = re.compile(b"|".join(map(re.escape, self._lines)))
        self._first_bytes = {line[0] for line in self._lines}
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return the redacted output, without an end that may be the beginning of a secret."""
        if not self._lines:
            return chunk
        text, parts, at = self._held + chunk, [], 0
        end = self._end_of_complete(text, 0)
        for match in self._pattern.finditer(text):
            if match.start() >= end:
                break
            parts += [text[at : match.start()], _REDACTED]
            at = match.end()
            if at > end:
                end = self._end_of_complete(text, at)
        parts.append(text[at:end])
        self._held = text[end:]
        return b"".join(parts)

    def finish(self) -> bytes:
        """Return the rest of the output, redacted."""
        rest, self._held = self._held, b""
        return self._pattern.sub(_REDACTED, rest) if rest else b""

    def _end_of_complete(self, text: bytes, begin: int) -> int:
        """Return the index from which on ``text`` may be the beginning of a secret."""
        line_begin = text.rfind(b"\n") + 1
        for start in range(max(begin, line_begin, len(text) - len(self._lines[0]) + 1), len(text)):
            if text[start] in self._first_bytes:
                rest = text[start:]
                if any(len(rest) < len(line) and line.startswith(rest) for line in self._lines):
                    return start
        return len(text)


class RedactedLog(LogFile):
    """A log without the values of secrets."""

    def __init__(self, path: Path, values: Collection[str]) -> None:
        super().__init__(path)
        self._redactor = Redactor(values)

    def write(self, chunk: bytes, at: int | None = None) -> None:
        """Append a chunk of output."""
        super().write(self._redactor.feed(chunk), at)

    def close(self) -> None:
        """Write the rest and close the file."""
        if rest := self._redactor.finish():
            super().write(rest)
        super().close()
