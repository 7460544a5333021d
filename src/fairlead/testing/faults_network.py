"""A simulated network between job processes and the server: late, lost, twice, cut."""

import random
from collections.abc import Callable
from typing import Any

from fairlead.testing.faults_machine import Machine, Process

_TIMEOUT_S = 5.0

Renew = Callable[[int, dict[str, object]], dict[str, object] | None]


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

    def post(self, lease: int, body: dict[str, object]) -> tuple[int, dict[str, Any]]:
        """Renew a lease; OSError when no answer comes."""
        machine, rng = self._machine, self._rng
        me = machine.me
        assert me is not None
        told = dict(body)
        self._travel(me)
        server = self.server
        if server is None:
            raise ConnectionRefusedError
        answer = server(lease, told)
        if self.trouble and rng.random() < self.trouble:  # it arrives once more, later
            machine.loop.call_later(rng.uniform(0.0, 2.0), self._again, server, lease, told)
        self._travel(me)
        if self.server is not server:
            raise ConnectionResetError
        if answer is None:
            me.told_it_is_over = True
            return 409, {}
        if answer["leave"]:
            me.told_to_leave = True
        else:
            me.valid_until = machine.loop.time() + float(str(answer["valid_s"]))
        return 200, dict(answer)

    def _again(self, server: Renew, lease: int, told: dict[str, object]) -> None:
        if self.server is server:
            server(lease, told)

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
