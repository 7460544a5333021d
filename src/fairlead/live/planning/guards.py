"""Guards around the mechanisms of other packages: their answers are checked before they count."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.core.event_log import encode_value
from fairlead.live.planning.failures import PlanFailures
from fairlead.live.planning.recovery import PlanFunction
from fairlead.live.scheduling_config import SchedulingConfig
from fairlead.mechanisms.base import Mechanism, SupportsRefill, WarmMechanism
from fairlead.mechanisms.planner import Planner
from fairlead.model.arrays import IntArray
from fairlead.model.capabilities import Capabilities, capabilities_of
from fairlead.model.errors import InputError
from fairlead.model.lease import NO_PLACEMENTS, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.placement.contract import check_plan, check_refill, require
from fairlead.policies.base import WarmStart
from fairlead.registry import PlugIn


class PlugInGuard:
    """Checks plans and refills of mechanisms that are not Fairlead's own."""

    def __init__(self, plug_ins: Sequence[PlugIn]) -> None:
        self.failures = PlanFailures(plug_ins)
        self._outside = _is_outside(plug_ins)

    def prepare(self, config: SchedulingConfig) -> None:
        """Check also the mechanism of a config that the scheduler may get now.

        Raises InputError if the event log could not hold its memory.
        """
        if not _is_outside(config.plug_ins):
            return
        self._outside = True
        try:
            _check_memory(config.mechanism, config.mechanism.initial())
        except Exception as error:  # a plug-in may raise anything
            problem = f"{config.plug_ins[-1]} cannot be used: {type(error).__name__}: {error}"
            raise InputError(problem, fix="update the package", field="mechanism") from error

    def use_config(self, config: SchedulingConfig) -> None:
        """Check the mechanism of another config from now on."""
        self._outside = _is_outside(config.plug_ins)
        self.failures.use_plug_ins(config.plug_ins)

    def make_planner(self, mechanism: Mechanism[Any]) -> PlanFunction:
        """Return a new planner, which raises ContractViolationError for an invalid plan."""
        if self._outside and isinstance(mechanism, WarmMechanism):
            mechanism = _CheckedWarmMechanism(mechanism)
        elif self._outside:
            mechanism = _CheckedMechanism(mechanism)
        return Planner(mechanism).plan

    def refill(self, mechanism: SupportsRefill) -> SupportsRefill:
        """Return the refill of a mechanism, without effect where another package's fails."""
        return _GuardedRefill(mechanism, self.failures) if self._outside else mechanism


def _is_outside(plug_ins: Sequence[PlugIn]) -> bool:
    """Return whether one of the mechanisms is not Fairlead's own."""
    return any(plug_in.kind == "mechanism" and not plug_in.built_in for plug_in in plug_ins)


@dataclass(frozen=True, slots=True)
class _GuardedRefill:
    """Starts nothing where the inner refill fails: it runs on the event loop."""

    inner: SupportsRefill
    failures: PlanFailures

    def refill(self, snap: Snapshot, memory: Any, idle: IntArray) -> Placements:
        """Return the mechanism's refill if it is valid, else no placement."""
        try:
            more = self.inner.refill(snap, memory, idle)
            require(isinstance(more, Placements), f"not placements: {more!r:.200}", snap)
            check_refill(snap, idle, more)
            self.failures.refilled()
        except Exception as error:  # a plug-in may raise anything
            self.failures.record(error, refill=True)
            return NO_PLACEMENTS
        return more


@dataclass(frozen=True, slots=True)
class _CheckedMechanism:
    """Raises ContractViolationError where the inner mechanism returns nonsense."""

    inner: Any

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the inner mechanism."""
        return capabilities_of(self.inner)

    def initial(self) -> Any:
        """Return the memory before the first plan."""
        return self.inner.initial()

    def plan(self, snap: Snapshot, memory: Any) -> tuple[Plan, Any]:
        """Return the plan and the memory after it."""
        return _checked(self.inner, snap, self.inner.plan(snap, memory))


@dataclass(frozen=True, slots=True)
class _CheckedWarmMechanism(_CheckedMechanism):
    """The same for a mechanism that asks a policy."""

    def plan_warm(self, warm: WarmStart, snap: Snapshot, memory: Any) -> tuple[Plan, Any]:
        """Return the plan and the memory after it."""
        return _checked(self.inner, snap, self.inner.plan_warm(warm, snap, memory))


def _checked(mechanism: Mechanism[Any], snap: Snapshot, answer: Any) -> tuple[Plan, Any]:
    """Return a mechanism's answer; raise ContractViolationError if it is invalid."""
    is_pair = isinstance(answer, tuple) and len(answer) == 2
    require(
        is_pair and isinstance(answer[0], Plan), f"not a plan and a memory: {answer!r:.200}", snap
    )
    plan, memory = answer
    check_plan(snap, plan)
    _check_memory(mechanism, memory)
    return plan, memory


def _check_memory(mechanism: Mechanism[Any], memory: Any) -> None:
    """Raise ContractViolationError unless the event log can hold a memory."""
    expected = type(mechanism.initial())
    require(
        type(memory) is expected,
        f"memory of type {type(memory).__name__}, not {expected.__name__}",
    )
    try:
        json.dumps(encode_value(memory))
    except (TypeError, ValueError) as error:
        require(False, f"memory that cannot be written as JSON: {error}")
