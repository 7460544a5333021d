"""A mechanism under watch: every answer it gives is checked as it gives it."""

import copy
import json
import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from fairlead.core import decode_event, encode_event
from fairlead.mechanisms.base import WarmMechanism
from fairlead.model.arrays import IntArray
from fairlead.model.events import PlanReady
from fairlead.model.job import Job
from fairlead.model.lease import NO_PLACEMENTS, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import WarmStart
from fairlead.testing.contract import check_plan, check_refill, require


def watched(mechanism: Any, jobs: Sequence[Job]) -> Any:
    """Return a mechanism that answers as this one does and fails when an answer breaks a rule.

    It keeps all other capabilities of the original, for it is of a class derived from its
    class. Every plan is asked for twice, the second time with a memory that has been through
    the log and without the solver state of earlier plans, and with neither the snapshot nor the
    memory changed in between.
    """
    kind = type(mechanism)

    warms = issubclass(kind, WarmMechanism)

    def plan(self: Any, snap: Snapshot, memory: Any) -> tuple[Plan, Any]:
        return plan_warm(self, WarmStart(), snap, memory)

    def plan_warm(self: Any, warm: WarmStart, snap: Snapshot, memory: Any) -> tuple[Plan, Any]:
        before, seen = _line(memory), _contents(snap)
        answer, after = _answer(self, warm, snap, memory)
        require(_line(memory) == before, "the memory it was given was changed", snap)
        require(_contents(snap) == seen, "the snapshot it was given was changed", snap)
        logged = decode_event(before, type(memory))
        assert isinstance(logged, PlanReady)
        again, after_again = _answer(self, WarmStart(), snap, logged.memory)
        require(
            _alike(json.loads(_line(after, answer)), json.loads(_line(after_again, again))),
            "the same snapshot and memory, once through the log, gave another plan",
            snap,
        )
        check_plan(snap, answer, jobs)
        return answer, after

    def _answer(self: Any, warm: WarmStart, snap: Snapshot, memory: Any) -> tuple[Plan, Any]:
        given = (warm, snap, memory) if warms else (snap, memory)
        answer: tuple[Plan, Any] = (kind.plan_warm if warms else kind.plan)(self, *given)
        return answer

    def refill(self: Any, snap: Snapshot, memory: Any, idle: IntArray) -> Placements:
        before, seen = _line(memory), _contents(snap)
        more: Placements = kind.refill(self, snap, memory, idle)
        require(_line(memory) == before, "refill changed the memory it was given", snap)
        require(_contents(snap) == seen, "refill changed the snapshot it was given", snap)
        check_refill(snap, idle, more, jobs)
        return more

    members: dict[str, object] = {"plan": plan, "__slots__": ()}
    if warms:
        members["plan_warm"] = plan_warm
    if hasattr(kind, "refill"):
        members["refill"] = refill
    watching = copy.copy(mechanism)
    object.__setattr__(watching, "__class__", type(f"Watched{kind.__name__}", (kind,), members))
    return watching


def _alike(a: Any, b: Any) -> bool:
    """Tell whether two decoded lines agree; a warm solver may round differently."""
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    return bool(a == b)


def _line(memory: object, plan: Plan | None = None) -> str:
    empty = Plan(np.zeros(0, dtype=np.int64), NO_PLACEMENTS, 1.0, 1.0)
    return encode_event(PlanReady(0.0, 0, plan or empty, memory))


def _contents(snap: Snapshot) -> list[bytes]:
    values = [getattr(snap, field.name) for field in fields(snap)]
    values += [getattr(snap.profiles, field.name) for field in fields(snap.profiles)]
    return [value.tobytes() for value in values if isinstance(value, np.ndarray)]
