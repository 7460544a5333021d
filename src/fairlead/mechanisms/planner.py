"""Computes plans with one mechanism and keeps its solvers warm in between."""

from collections.abc import Callable
from functools import partial
from typing import Any

from fairlead.mechanisms.base import Mechanism, TakesTurns, Turns, WarmMechanism
from fairlead.mechanisms.guarantees import guaranteed_plan
from fairlead.model.arrays import IntArray
from fairlead.model.capabilities import capabilities_of
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import WarmStart


class Planner:
    """Owns the solver state of one sequence of plans; used by one thread at a time.

    The mechanism stays a value that others may use meanwhile.
    """

    def __init__(self, mechanism: Mechanism[Any]) -> None:
        self._warm = WarmStart()
        self._plan: Callable[[Snapshot, Any], tuple[Plan, Any]]
        if isinstance(mechanism, WarmMechanism):
            self._plan = partial(mechanism.plan_warm, self._warm)
        else:
            self._plan = mechanism.plan
        self._may_stop = capabilities_of(mechanism).stops_jobs
        self.plan: Callable[[Snapshot, Any], tuple[Plan, Any]] = self._plan_with_guarantees
        """computes the plan for a snapshot and memory, and the memory after it"""

    def turn_rounds(
        self, mechanism: TakesTurns, snap: Snapshot, memory: Any, device: IntArray
    ) -> Turns | None:
        """Return the rounds after the plan for ``snap`` in which jobs take turns, if they do."""
        return mechanism.turn_rounds(self._warm, snap, memory, device)

    def _plan_with_guarantees(self, snap: Snapshot, memory: Any) -> tuple[Plan, Any]:
        """Return the mechanism's plan, changed where a guarantee needs it, and its memory.

        Devices that move to meet a guarantee count as received or missed by their jobs, so the
        mechanism makes up for them in later rounds.
        """
        plan, after = self._plan(snap, memory)
        return guaranteed_plan(snap, plan, may_stop=self._may_stop), after
