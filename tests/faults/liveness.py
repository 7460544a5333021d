"""Looks now and then at who still runs: nobody stays who is to leave, or whom nobody wants."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.faults.machine.machine import Process

if TYPE_CHECKING:
    from tests.faults.world import World

_EVERY_S = 2.0
_LONGEST_GRACE_S = 5.0
_LEAVES_S = 5.0
"""how much longer than its grace a lease that is told to leave may take"""
_HEARS_S = 10.0
"""in which a server has heard which devices others hold"""


class Watch:
    """Compares the processes that live with what the server that is up wants."""

    def __init__(self, world: "World") -> None:
        self._world, self._loop, self._checks = world, world.loop, world.checks
        self._leaving_since: dict[int, float] = {}

    def look(self) -> None:
        """Look now, and again after a while."""
        world, now = self._world, self._loop.time()
        members = world.jobs.members()
        reached = [one for one in members if not one.nodes & world.machine.cut]
        self._checks.jobs.check_gangs(reached)
        self._check_leaving(reached)
        server = world.server
        if server is not None and server.started:
            if now - max(server.started_at, world.nodes.taken_at) > _HEARS_S:
                self._checks.server.heard(server.live, world.machine.taken)
            for one in reached:
                since = max(server.started_at, world.nodes.cut_until.get(one.node, 0.0))
                late_s = now - since - one.stalled_s - _LEAVES_S - _LONGEST_GRACE_S
                wanted = one.lease in server.live.leases or late_s < 0
                self._checks.require(wanted, f"{one.name} goes on, and nobody wants it")
        self._loop.call_later(_EVERY_S, self.look)

    def _check_leaving(self, reached: Sequence[Process]) -> None:
        """Require that members end soon after their lease was told to leave."""
        world, now, require = self._world, self._loop.time(), self._checks.require
        server = world.server
        if server is None or not server.started:
            self._leaving_since.clear()
            return
        leaving = {number for number, one in server.live.leases.items() if one.leaving}
        self._leaving_since = {
            lease: self._leaving_since.get(lease, now) for lease in sorted(leaving)
        }
        for member in reached:
            assert member.order is not None
            since = max(
                self._leaving_since.get(member.lease, now),
                world.nodes.cut_until.get(member.node, 0.0),
            )
            late_s = now - since - member.order.grace_s - member.stalled_s
            require(late_s < _LEAVES_S, f"lease {member.lease} was told to leave and does not")
        if world.quiet:
            for lease, told_at in self._leaving_since.items():
                # Before, the disk may have been full, and an end that cannot be noted is none.
                since = max(told_at, world.jobs.begins_by.get(lease, 0.0), world.plan.quiet_at)
                late = now - since > _LEAVES_S + _LONGEST_GRACE_S
                require(not late, f"lease {lease} was told to leave and is still open")
