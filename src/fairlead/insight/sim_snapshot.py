"""The snapshot of a simulated cluster at a moment."""

from dataclasses import replace
from typing import Any

from fairlead.mechanisms.base import Fluid, Mechanism, WarmMechanism
from fairlead.model.errors import InputError, UsageError
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import WarmStart
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario


def snapshot_at(scenario: Scenario, at_s: float) -> Snapshot:
    """Return what the scheduler sees at its first decision from ``at_s`` on that has jobs."""
    mechanism = scenario.mechanism
    if isinstance(mechanism, Fluid):
        raise UsageError("--at: a fluid mechanism makes no decisions; choose another --mechanism")
    try:
        simulate(replace(scenario, mechanism=_StopAt(mechanism, at_s)))
    except _SnapshotReached as reached:
        return reached.snap
    raise InputError(
        f"no decision is made from {at_s:g} s on: all jobs have finished",
        fix="give an earlier moment",
        field="--at",
    )


class _SnapshotReached(Exception):  # noqa: N818 - it is no error: it ends a simulation early
    def __init__(self, snap: Snapshot) -> None:
        super().__init__()
        self.snap = snap


class _StopAt:
    """A mechanism that stops the simulation at the first plan from a moment on."""

    def __init__(self, mechanism: Mechanism[Any], at_s: float) -> None:
        self._mechanism = mechanism
        self._at_s = at_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mechanism, name)

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
