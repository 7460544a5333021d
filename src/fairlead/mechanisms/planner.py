"""Computes plans with one mechanism and keeps its solvers warm in between."""

from collections.abc import Callable
from functools import partial
from typing import Any

from fairlead.mechanisms.base import Mechanism, WarmMechanism
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import WarmStart


class Planner:
    """Owns the solver state of one sequence of plans; used by one thread at a time.

    The mechanism stays a value that others may use meanwhile.
    """

    def __init__(self, mechanism: Mechanism[Any]) -> None:
        self.plan: Callable[[Snapshot, Any], tuple[Plan, Any]]
        """computes the plan for a snapshot and memory, and the memory after it"""
        if isinstance(mechanism, WarmMechanism):
            self.plan = partial(mechanism.plan_warm, WarmStart())
        else:
            self.plan = mechanism.plan
