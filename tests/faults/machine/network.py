"""Simulated network between job processes and the server: late, lost, duplicate messages."""

import random
from collections.abc import Callable
from typing import Any

from tests.faults.machine.machine import Machine, Process

_TIMEOUT_S = 5.0

_RETRY_S = 0.5
"""seconds after which a member retries an unanswered renewal"""

Renew = Callable[[int, str, dict[str, object]], tuple[int, dict[str, object]]]
"""(lease, token, renewal body) → status, answer"""


class Network:
    """Carries renewals to the running server."""

    def __init__(self, machine: Machine, rng: random.Random) -> None:
        self._machine = machine
        self._rng = rng
        self.server: Renew | None = None
        """the running server, None while it is down"""
        self.trouble = 0.0
        """probability that a message is late, lost or duplicated"""
        self.on_trouble: Callable[[Process], None] = lambda _: None
        self.cut_jobs: set[str] = set()
        """jobs that cannot reach the server"""

    def reaches(self, process: Process) -> bool:
        """Return whether the server and a process can reach each other."""
        assert process.order is not None
        return (
            process.order.job not in self.cut_jobs
            and not process.nodes & self._machine.unreachable
        )

    def post(self, lease: int, token: str, body: dict[str, object]) -> tuple[int, dict[str, Any]]:
        """Renew a lease; raise OSError without an answer."""
        me = self._machine.me
        assert me is not None
        me.renewing, next_s = True, _RETRY_S
        try:
            status, answer = self._renew(me, lease, token, dict(body))
            next_s = float(str(answer.get("again_s", _RETRY_S)))
        finally:
            me.renewing = False
            me.renews_by = self._machine.loop.time() + (0.0 if me.woken else next_s)
            me.woken = False
        return status, answer

    def _renew(
        self, me: Process, lease: int, token: str, body: dict[str, object]
    ) -> tuple[int, dict[str, Any]]:
        machine, rng = self._machine, self._rng
        self._transmit(me)
        server = self.server
        if server is None:
            raise ConnectionRefusedError
        status, answer = server(lease, token, body)
        me.reported_steps = int(str(body["steps"]))
        if self.trouble and rng.random() < self.trouble:  # a duplicate arrives later
            machine.loop.call_later(
                rng.uniform(0.0, 2.0), self._duplicate, server, lease, token, body
            )
        self._transmit(me)
        if self.server is not server:
            raise ConnectionResetError
        if status != 200:
            me.lease_end_announced = True
        elif answer["leave"]:
            me.leave_requested = True
        else:
            me.valid_until = machine.loop.time() + float(str(answer["valid_s"]))
        return status, dict(answer)

    def _duplicate(self, server: Renew, lease: int, token: str, body: dict[str, object]) -> None:
        if self.server is server:
            server(lease, token, body)

    def _transmit(self, process: Process) -> None:
        threads, rng = self._machine.threads, self._rng
        assert process.order is not None
        if (
            len(process.order.devices) > 1
        ):  # so that its members get their answers at different times
            threads.sleep(rng.uniform(0.0, 0.1))
        if not self.reaches(process):
            self.on_trouble(process)
            self._time_out(process)
        if self.trouble and rng.random() < self.trouble:
            self.on_trouble(process)
            if rng.random() < 0.3:
                self._time_out(process)
            late_s = rng.uniform(0.0, 1.0)
            process.stuck_until = self._machine.loop.time() + late_s
            threads.sleep(late_s)

    def _time_out(self, process: Process) -> None:
        process.stuck_until = self._machine.loop.time() + _TIMEOUT_S
        self._machine.threads.sleep(_TIMEOUT_S)
        raise TimeoutError
