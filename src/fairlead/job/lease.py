"""The lease of a running job: renewed in the background, given up together with the gang.

A member counts the steps it has started. When the lease is to end, no further step starts, the
member reports its count, and the server answers with the greatest count of all members: those
behind go on up to it, then all leave after the same step. Where the server is away they agree
without it, see ``parting``. See docs/design/live.md.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from fairlead import failpoints
from fairlead.job.gang_exit import GangExit
from fairlead.tls import explain_untrusted_certificate

_SOONEST_S, _LATEST_S = 0.05, 5.0
_RETRY_S = 0.5
_TIMEOUT_S = 5.0
_PARTING_S, _PARTING_TURN_S = 15.0, 0.2
"""how long a gang tries to agree on its last step without the server, and how often it looks"""
_WINDOW_S = 1.0
"""the least time over which a speed is measured"""


class Lease:
    """One member's side of a lease."""

    def __init__(
        self,
        url: str,
        number: int,
        token: str,
        *,
        rank: int,
        valid_s: float,
        parting: GangExit | None = None,
    ) -> None:
        self.number = number
        self._gang_exit = parting
        """with the rest of its gang; None for one alone"""
        self._leaving_alone_since: float | None = None
        self._url = urlsplit(url)
        self._token = token
        self._rank = rank
        self._until = time.monotonic() + valid_s
        self._connection: Any = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._decided = threading.Event()
        self.started = 0
        self.steps = 0
        self.saved_steps = 0
        self.metrics: dict[str, float] = {}
        self._metrics_sent: dict[str, float] = {}
        self._leaving = False
        self._leave_after: int | None = None
        self.lost = False
        """the server has given this lease to nobody or somebody else"""
        self._closed = False
        self._began_at_steps = 0
        self._first_step_at: float | None = None
        self.last_step_at: float | None = None
        self._speed = 0.0
        self._mark: tuple[float, int] | None = None
        """when the step ended up to which the speed was last measured, and its number"""
        self.on_speed: Callable[[float], None] = lambda _: None
        """told how fast an emulated accelerator is from now on"""
        self.on_untrusted_server: Callable[[str], None] = lambda _: None
        """told once why the server's certificate is not accepted, and what to do about it"""
        self._untrusted_reported = ""
        self._thread = threading.Thread(target=self._keep, name="fairlead-lease", daemon=True)

    def begin(self, steps: int) -> None:
        """Start renewing, from this many steps on."""
        self.started = self.steps = self.saved_steps = self._began_at_steps = steps
        self._thread.start()

    def may_start(self) -> bool:
        """Count one more step as started, or return False when it is time to leave."""
        if self._first_step_at is None:
            self._first_step_at = time.monotonic()
        with self._lock:
            if not self._leaving:
                self.started += 1
                return True
        self._decided.wait()
        if self.lost or self._leave_after is None or self.started >= self._leave_after:
            return False
        self.started += 1
        return True

    def check_now(self) -> None:
        """Look at once whether the lease is to end: the process was sent a signal."""
        self._wake.set()

    def close(self) -> None:
        """Say the last word and stop renewing."""
        self._closed = True
        self._wake.set()
        self._thread.join(_TIMEOUT_S)

    def _keep(self) -> None:
        wait_s = 0.0
        while not self._closed:
            self._wake.wait(wait_s)
            self._wake.clear()
            wait_s = self._turn()
            if self._decided.is_set():
                return
        self._renew()

    def _turn(self) -> float:
        """Renew once; return how long to wait before the next time."""
        failpoints.point("job.renewal.before")
        answer = self._renew()
        failpoints.point("job.renewal.after")
        now = time.monotonic()
        if self.lost:
            self._decide(None)
            return 0.0
        if answer is not None and answer.get("leave_after") is not None:
            last = int(answer["leave_after"])
            if self._gang_exit is not None:  # the server may die before it has told all of them
                self._gang_exit.last_step(last)
            self._decide(last)
            return 0.0
        # Without a server the job goes on until its lease is over, then it must leave: a server
        # that comes back may have given its devices to somebody else.
        over = answer is None and now >= self._until
        if self._gang_exit is None:
            if over:
                self._decide(self.started)
        elif over or self._gang_exit.has_begun():
            return self._part(self._gang_exit, now)
        if answer is None:
            return min(_RETRY_S, max(self._until - now, _SOONEST_S))
        if answer.get("emulated_steps_per_s"):
            self.on_speed(float(answer["emulated_steps_per_s"]))
        if not answer.get("leave"):
            self._until = now + float(answer["valid_s"])
            return next_renewal_s(answer)
        with self._lock:
            told, self._leaving = self._leaving, True
        # The others of the gang wait for our count.
        return float(answer.get("again_s", _SOONEST_S)) if told else 0.0

    def _part(self, parting: GangExit, now: float) -> float:
        """Agree with the gang on the last step; return how long to wait before the next look."""
        with self._lock:
            self._leaving = True
        self._leaving_alone_since = self._leaving_alone_since or now
        last = parting.last_step(self.started)
        if last is not None:
            self._decide(last)
        elif (
            now > self._leaving_alone_since + _PARTING_S
        ):  # some are not to be heard: each for itself
            self._decide(self.started)
        return _PARTING_TURN_S

    def _decide(self, leave_after: int | None) -> None:
        with self._lock:
            self._leaving = True
            self._leave_after = leave_after
        self._decided.set()

    def _renew(self) -> dict[str, Any] | None:
        """Return the server's answer, None when it cannot be had."""
        now = time.monotonic()
        body: dict[str, object] = {
            "rank": self._rank,
            "started": self.started,
            "steps": self.steps,
            "saved_steps": self.saved_steps,
            "steps_per_s": self._measure(),
            "leaving": self._leaving,
        }
        if self._first_step_at is not None:
            body["first_step_s"] = now - self._first_step_at
        if self.last_step_at is not None:
            body["last_step_s"] = now - self.last_step_at
        metrics = dict(self.metrics)
        if metrics != self._metrics_sent:
            body["metrics"] = metrics
        try:
            status, answer = self._post(f"/v1/leases/{self.number}/renew", body)
        except (OSError, ValueError) as error:
            self._connection = None
            self._report_untrusted_server(error)
            return None
        self._untrusted_reported = ""
        if status in (401, 403, 404, 409):
            self.lost = True
            return None
        if status != 200:
            return None
        self._metrics_sent = metrics
        return answer

    def _report_untrusted_server(self, error: Exception) -> None:
        found = explain_untrusted_certificate(error, self._url.hostname or "")
        told = "; ".join(found) if found else ""
        if told and told != self._untrusted_reported:
            self._untrusted_reported = told
            self.on_untrusted_server(f"no progress is reported: {told}")

    def _measure(self) -> float:
        """Return the speed of late, from the end of one step to that of a later one."""
        at, steps = self.last_step_at, self.steps
        if at is None or self._first_step_at is None:
            return 0.0
        since, before = self._mark or (self._first_step_at, self._began_at_steps)
        if steps > before and (at - since >= _WINDOW_S or self._mark is None):
            self._speed = (steps - before) / max(at - since, 1e-9)
            if at - since >= _WINDOW_S:
                self._mark = at, steps
        return self._speed

    def _post(self, path: str, body: dict[str, object]) -> tuple[int, dict[str, Any]]:
        from http import client  # noqa: PLC0415  # slow to import, and only this thread wants it

        if self._connection is None:
            kind = client.HTTPSConnection if self._url.scheme == "https" else client.HTTPConnection
            self._connection = kind(self._url.hostname or "", self._url.port, timeout=_TIMEOUT_S)
        try:
            self._connection.request(
                "POST",
                self._url.path.rstrip("/") + path,
                json.dumps(body),
                {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"},
            )
            answer = self._connection.getresponse()
            text = answer.read()
        except client.HTTPException as error:
            self._connection.close()
            raise OSError(str(error)) from None
        found = json.loads(text) if text else {}
        return answer.status, found if isinstance(found, dict) else {}


def next_renewal_s(answer: Mapping[str, Any]) -> float:
    """Return how long to wait after this answer: as it says, else a part of what it gives."""
    often_s = min(max(float(answer["valid_s"]) / 8, _SOONEST_S), _LATEST_S)
    return float(answer.get("again_s", often_s))
