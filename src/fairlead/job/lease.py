"""The lease of a running job: renewed in the background, given up together with the gang.

A member counts the steps it has started. When the lease must end, no further step starts, the
member reports its count, and the server answers with the greatest count of all members: those
behind continue up to it, then all leave after the same step. If the server is unreachable they
agree without it, see ``gang_exit``. See docs/design/live.md.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from fairlead import failpoints
from fairlead.job.gang_exit import GangExit
from fairlead.tls import explain_untrusted_certificate

_MIN_RENEWAL_S, _MAX_RENEWAL_S = 0.05, 5.0
_RETRY_S = 0.5
_TIMEOUT_S = 5.0
_AGREEMENT_TIMEOUT_S, _AGREEMENT_POLL_S = 15.0, 0.2
"""limits for a gang that agrees on its last step without the server"""
_MIN_WINDOW_S = 1.0
"""shortest time over which a speed is measured"""


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
        gang_exit: GangExit | None = None,
        on_speed: Callable[[float], None] = lambda _: None,
        on_untrusted_server: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Prepare to renew a lease that is valid for ``valid_s``.

        ``gang_exit`` is None for a gang of one. ``on_speed`` receives the speed of an emulated
        accelerator when that changes; ``on_untrusted_server`` receives, once, the problem with the
        server's certificate and its fix.
        """
        self.number = number
        self._gang_exit = gang_exit
        self._on_speed, self._on_untrusted_server = on_speed, on_untrusted_server
        self._agreeing_since: float | None = None
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
        """the server no longer knows this lease"""
        self.was_preempted = False
        """the server has asked it to leave"""
        self._closed = False
        self._began_at_steps = 0
        self._first_step_at: float | None = None
        self.last_step_at: float | None = None
        self._speed = 0.0
        self._mark: tuple[float, int] | None = None
        """end and number of the step up to which the speed was last measured"""
        self._untrusted_reported = ""
        self._thread = threading.Thread(
            target=self._renewal_loop, name="fairlead-lease", daemon=True
        )

    def begin(self, steps: int) -> None:
        """Start renewing at this number of steps."""
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
        """Renew at once: the process received a signal, so the lease may have to end."""
        self._wake.set()

    def close(self) -> None:
        """Renew a last time and stop renewing."""
        self._closed = True
        self._wake.set()
        self._thread.join(_TIMEOUT_S)

    def _renewal_loop(self) -> None:
        wait_s = 0.0
        while not self._closed:
            self._wake.wait(wait_s)
            self._wake.clear()
            wait_s = self._renew_once()
            if self._decided.is_set():
                return
        self._renew()

    def _renew_once(self) -> float:
        """Renew once; return the seconds until the next renewal."""
        failpoints.point("job.renewal.before")
        answer = self._renew()
        failpoints.point("job.renewal.after")
        now = time.monotonic()
        if answer is not None and answer.get("leave"):
            self.was_preempted = True
        if self.lost:
            self._set_last_step(None)
            return 0.0
        if answer is not None and answer.get("leave_after") is not None:
            last = int(answer["leave_after"])
            if self._gang_exit is not None:  # the server may die before all members know
                self._gang_exit.last_step(last)
            self._set_last_step(last)
            return 0.0
        # Without a server the job runs until its lease expires, then it must leave: a server
        # that comes back may have given its devices to another job.
        expired = answer is None and now >= self._until
        if self._gang_exit is None:
            if expired:
                self._set_last_step(self.started)
        elif expired or self._gang_exit.has_begun():
            return self._agree_on_last_step(self._gang_exit, now)
        if answer is None:
            return min(_RETRY_S, max(self._until - now, _MIN_RENEWAL_S))
        if answer.get("emulated_steps_per_s"):
            self._on_speed(float(answer["emulated_steps_per_s"]))
        if not answer.get("leave"):
            self._until = now + float(answer["valid_s"])
            return next_renewal_s(answer)
        with self._lock:
            reported, self._leaving = self._leaving, True
        # The other members wait for this one's count.
        return float(answer.get("again_s", _MIN_RENEWAL_S)) if reported else 0.0

    def _agree_on_last_step(self, gang_exit: GangExit, now: float) -> float:
        """Agree with the gang on the last step; return the seconds until the next poll."""
        with self._lock:
            self._leaving = True
        self._agreeing_since = self._agreeing_since or now
        last = gang_exit.last_step(self.started)
        if last is not None:
            self._set_last_step(last)
        elif now > self._agreeing_since + _AGREEMENT_TIMEOUT_S:  # some are silent: leave alone
            self._set_last_step(self.started)
        return _AGREEMENT_POLL_S

    def _set_last_step(self, leave_after: int | None) -> None:
        with self._lock:
            self._leaving = True
            self._leave_after = leave_after
        self._decided.set()

    def _renew(self) -> dict[str, Any] | None:
        """Return the server's answer, None without one."""
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
        metrics = _device_memory() | self.metrics
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
        explanation = explain_untrusted_certificate(error, self._url.hostname or "")
        text = "; ".join(explanation) if explanation else ""
        if text and text != self._untrusted_reported:
            self._untrusted_reported = text
            self._on_untrusted_server(f"no progress is reported: {text}")

    def _measure(self) -> float:
        """Return the recent speed, measured from the end of one step to the end of a later one."""
        at, steps = self.last_step_at, self.steps
        if at is None or self._first_step_at is None:
            return 0.0
        since, before = self._mark or (self._first_step_at, self._began_at_steps)
        if steps > before and (at - since >= _MIN_WINDOW_S or self._mark is None):
            self._speed = (steps - before) / max(at - since, 1e-9)
            if at - since >= _MIN_WINDOW_S:
                self._mark = at, steps
        return self._speed

    def _post(self, path: str, body: dict[str, object]) -> tuple[int, dict[str, Any]]:
        from http import client  # noqa: PLC0415  # slow to import; only this thread uses it

        if self._connection is None:
            secure = self._url.scheme == "https"
            connect = client.HTTPSConnection if secure else client.HTTPConnection
            host, port = self._url.hostname or "", self._url.port
            self._connection = connect(host, port, timeout=_TIMEOUT_S)
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
        content = json.loads(text) if text else {}
        return answer.status, content if isinstance(content, dict) else {}


def next_renewal_s(answer: Mapping[str, Any]) -> float:
    """Return the seconds until the next renewal: from the answer, else a part of its validity."""
    default_s = min(max(float(answer["valid_s"]) / 8, _MIN_RENEWAL_S), _MAX_RENEWAL_S)
    return float(answer.get("again_s", default_s))


def _device_memory() -> dict[str, float]:
    """Return the device memory that PyTorch has needed at most, in GiB; empty without a GPU.

    Tensors count, not the blocks that its allocator keeps for later ones.
    """
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if cuda is None or not cuda.is_initialized():
            return {}
        peak = max(map(cuda.max_memory_allocated, range(cuda.device_count())), default=0)
    except (AttributeError, RuntimeError):  # PyTorch is being imported, or a device has failed
        return {}
    needed_gib = round(peak / 2**30, 2)
    return {"memory_gib": needed_gib} if needed_gib else {}
