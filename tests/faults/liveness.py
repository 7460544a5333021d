"""Periodic check that preempted and unknown leases stop running."""

from collections.abc import Sequence

from tests.faults.context import FaultContext
from tests.faults.machine.machine import Process

_EVERY_S = 2.0
_MAX_GRACE_S = 5.0
_LEAVES_S = 5.0
"""seconds beyond its grace period that a preempted lease may take"""
_REPORTED_S = 10.0
"""seconds within which a server knows the taken devices"""


class LivenessChecker:
    """Compares the running processes with the leases of the running server."""

    def __init__(self, world: FaultContext) -> None:
        self._world, self._loop, self._checks = world, world.loop, world.checks
        self._leaving_since: dict[int, float] = {}

    def check(self) -> None:
        """Check now and again after a few seconds."""
        world, now = self._world, self._loop.time()
        members = world.jobs.members()
        reached = [member for member in members if not member.nodes & world.machine.unreachable]
        self._checks.jobs.check_gangs(reached)
        self._check_leaving(reached)
        server = world.server
        if server is not None and server.started:
            if now - max(server.started_at, world.nodes.taken_at) > _REPORTED_S:
                self._checks.server.knows_taken(server.live, world.machine.taken)
            for member in reached:
                since = max(server.started_at, world.nodes.cut_until.get(member.node, 0.0))
                late_s = now - since - member.stalled_s - _LEAVES_S - _MAX_GRACE_S
                wanted = member.lease in server.live.leases or late_s < 0
                self._checks.require(wanted, f"{member.name} runs without an open lease")
        self._loop.call_later(_EVERY_S, self.check)

    def _check_leaving(self, reached: Sequence[Process]) -> None:
        """Require that members end soon after their lease was preempted."""
        world, now, require = self._world, self._loop.time(), self._checks.require
        server = world.server
        if server is None or not server.started:
            self._leaving_since.clear()
            return
        leaving = {number for number, lease in server.live.leases.items() if lease.leaving}
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
            require(late_s < _LEAVES_S, f"lease {member.lease} was preempted and still runs")
        if world.quiet:
            for lease, preempted_at in self._leaving_since.items():
                # Earlier the disk may have been full, so that no end could be recorded.
                since = max(
                    preempted_at, world.jobs.begins_by.get(lease, 0.0), world.plan.quiet_at
                )
                late = now - since > _LEAVES_S + _MAX_GRACE_S
                require(not late, f"lease {lease} was preempted and is still open")
