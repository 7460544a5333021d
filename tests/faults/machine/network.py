"""A simulated network between job processes and the server: late, lost, twice, cut."""

import random
from collections.abc import Callable
from typing import Any

from tests.faults.machine.machine import Machine, Process

_TIMEOUT_S = 5.0

_RETRY_S = 0.5
"""after which a member that got no answer asks again"""

Renew = Callable[[int, str, dict[str, object]], tuple[int, dict[str, object]]]
"""(lease, token, what a member tells) → status, answer"""


class Network:
    """Carries renewals to whichever server is up."""

    def __init__(self, machine: Machine, rng: random.Random) -> None:
        self._machine = machine
        self._rng = rng
        self.server: Renew | None = None
        """the server that is up, None when none is"""
        self.trouble = 0.0
        """how likely it is that a message is late, lost or sent twice"""
        self.on_trouble: Callable[[Process], None] = lambda _: None
        self.cut_jobs: set[str] = set()
        """jobs that cannot reach the server"""

    def reaches(self, process: Process) -> bool:
        """Tell whether the server and a process reach one another."""
        assert process.order is not None
        return process.order.job not in self.cut_jobs and not process.nodes & self._machine.cut

    def post(self, lease: int, token: str, body: dict[str, object]) -> tuple[int, dict[str, Any]]:
        """Renew a lease; OSError when no answer comes."""
        me = self._machine.me
        assert me is not None
        me.asking, again_s = True, _RETRY_S
        try:
            status, answer = self._ask(me, lease, token, dict(body))
            again_s = float(str(answer.get("again_s", _RETRY_S)))
        finally:
            me.asking = False
            me.asks_by = self._machine.loop.time() + (0.0 if me.woken else again_s)
            me.woken = False
        return status, answer

    def _ask(
        self, me: Process, lease: int, token: str, told: dict[str, object]
    ) -> tuple[int, dict[str, Any]]:
        machine, rng = self._machine, self._rng
        self._travel(me)
        server = self.server
        if server is None:
            raise ConnectionRefusedError
        status, answer = server(lease, token, told)
        me.told_steps = int(str(told["steps"]))
        if self.trouble and rng.random() < self.trouble:  # it arrives once more, later
            machine.loop.call_later(rng.uniform(0.0, 2.0), self._again, server, lease, token, told)
        self._travel(me)
        if self.server is not server:
            raise ConnectionResetError
        if status != 200:
            me.lease_end_announced = True
        elif answer["leave"]:
            me.leave_requested = True
        else:
            me.valid_until = machine.loop.time() + float(str(answer["valid_s"]))
        return status, dict(answer)

    def _again(self, server: Renew, lease: int, token: str, told: dict[str, object]) -> None:
        if self.server is server:
            server(lease, token, told)

    def _travel(self, process: Process) -> None:
        fibres, rng = self._machine.fibres, self._rng
        assert process.order is not None
        if len(process.order.devices) > 1:  # so that its members are told at different times
            fibres.sleep(rng.uniform(0.0, 0.1))
        if not self.reaches(process):
            self.on_trouble(process)
            self._time_out(process)
        if self.trouble and rng.random() < self.trouble:
            self.on_trouble(process)
            if rng.random() < 0.3:
                self._time_out(process)
            late_s = rng.uniform(0.0, 1.0)
            process.stuck_until = self._machine.loop.time() + late_s
            fibres.sleep(late_s)

    def _time_out(self, process: Process) -> None:
        process.stuck_until = self._machine.loop.time() + _TIMEOUT_S
        self._machine.fibres.sleep(_TIMEOUT_S)
        raise TimeoutError
