"""Warm starts: the solver state that one planner keeps between two allocations."""

from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar, runtime_checkable

from fairlead.model.allocation import Allocation
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import Policy

T = TypeVar("T")


class WarmStart:
    """Solver state of one planner, by policy; speeds up its next solve and changes no result.

    Not thread-safe: every planner, explanation and audit owns its own. Policies are values and
    keep nothing themselves, so that any number of threads may share one.
    """

    def __init__(self) -> None:
        self._states: dict[Hashable, Any] = {}

    def state(self, policy: Hashable, create: Callable[[], T]) -> T:
        """Return the state of ``policy``, created at its first use; equal policies share it."""
        state: T | None = self._states.get(policy)
        if state is None:
            state = self._states[policy] = create()
        return state


@runtime_checkable
class WarmPolicy(Protocol):
    """A policy whose solver starts from its last answer, where the caller kept it."""

    def allocate_warm(self, snap: Snapshot, warm: WarmStart) -> Allocation:
        """Return what ``allocate`` returns, using and updating the caller's solver state."""
        ...


def allocate(policy: Policy, snap: Snapshot, warm: WarmStart) -> Allocation:
    """Return the policy's shares, from a warm start where the policy supports one."""
    if isinstance(policy, WarmPolicy):
        return policy.allocate_warm(snap, warm)
    return policy.allocate(snap)
