"""Snapshot of a simulated cluster at a given time."""

from dataclasses import replace
from typing import Any

from fairlead.mechanisms.base import FluidMechanism, Mechanism, SupportsRefill, WarmMechanism
from fairlead.model.arrays import IntArray
from fairlead.model.capabilities import Capabilities, capabilities_of
from fairlead.model.errors import InputError, UsageError
from fairlead.model.lease import Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import WarmStart
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario


def snapshot_at(scenario: Scenario, at_s: float) -> Snapshot:
    """Return the snapshot of the first decision with jobs at or after ``at_s``."""
    mechanism = scenario.mechanism
    if isinstance(mechanism, FluidMechanism):
        raise UsageError("--at: not supported by fluid mechanisms: expected another --mechanism")
    try:
        wrap = _StopAtWithRefill if isinstance(mechanism, SupportsRefill) else _StopAt
        simulate(replace(scenario, mechanism=wrap(mechanism, at_s)))
    except _SnapshotReached as reached:
        return reached.snap
    raise InputError(
        f"no decision at or after {at_s:g} s: all jobs have finished",
        fix="expected an earlier time",
        field="--at",
    )


class _SnapshotReached(Exception):  # noqa: N818 - not an error: it ends a simulation early
    def __init__(self, snap: Snapshot) -> None:
        super().__init__()
        self.snap = snap


class _StopAt:
    """A mechanism that stops the simulation at the first plan at or after a given time."""

    def __init__(self, mechanism: Mechanism[Any], at_s: float) -> None:
        self._mechanism = mechanism
        self._at_s = at_s

    @property
    def capabilities(self) -> Capabilities:
        return capabilities_of(self._mechanism)

    def plan(self, snap: Snapshot, memory: Any) -> tuple[Plan, Any]:
        if self._is_reached(snap):
            raise _SnapshotReached(snap)
        return self._mechanism.plan(snap, memory)

    def plan_warm(self, warm: WarmStart, snap: Snapshot, memory: Any) -> tuple[Plan, Any]:
        if isinstance(self._mechanism, WarmMechanism) and not self._is_reached(snap):
            return self._mechanism.plan_warm(warm, snap, memory)
        return self.plan(snap, memory)

    def _is_reached(self, snap: Snapshot) -> bool:
        return snap.at >= self._at_s and len(snap.job) > 0

    def initial(self) -> Any:
        return self._mechanism.initial()


class _StopAtWithRefill(_StopAt):
    """The same for a mechanism that refills devices within a round."""

    def refill(self, snap: Snapshot, memory: Any, idle: IntArray) -> Placements:
        assert isinstance(self._mechanism, SupportsRefill)
        return self._mechanism.refill(snap, memory, idle)
