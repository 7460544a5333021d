"""Wraps a mechanism so that every plan and refill is checked."""

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


def checked_mechanism(mechanism: Any, jobs: Sequence[Job]) -> Any:
    """Return a mechanism that behaves as this one and raises on a contract violation.

    It keeps all other capabilities of the original, because its class derives from the
    original's. Every plan is computed twice, the second time with a memory that was encoded to
    the log and without warm starts. Neither computation may change the snapshot or the
    memory.
    """
    original = type(mechanism)

    warms = issubclass(original, WarmMechanism)

    def plan(self: Any, snap: Snapshot, memory: Any) -> tuple[Plan, Any]:
        return plan_warm(self, WarmStart(), snap, memory)

    def plan_warm(self: Any, warm: WarmStart, snap: Snapshot, memory: Any) -> tuple[Plan, Any]:
        before, seen = _line(memory), _contents(snap)
        answer, after = _answer(self, warm, snap, memory)
        require(_line(memory) == before, "plan changed its memory", snap)
        require(_contents(snap) == seen, "plan changed the snapshot", snap)
        logged = decode_event(before, type(memory))
        assert isinstance(logged, PlanReady)
        again, after_again = _answer(self, WarmStart(), snap, logged.memory)
        line, line_again = _line(after, answer), _line(after_again, again)
        require(
            line == line_again or _alike(json.loads(line), json.loads(line_again)),
            "the same snapshot and the decoded memory gave a different plan",
            snap,
        )
        check_plan(snap, answer, jobs)
        return answer, after

    def _answer(self: Any, warm: WarmStart, snap: Snapshot, memory: Any) -> tuple[Plan, Any]:
        arguments = (warm, snap, memory) if warms else (snap, memory)
        answer: tuple[Plan, Any] = (original.plan_warm if warms else original.plan)(
            self, *arguments
        )
        return answer

    def refill(self: Any, snap: Snapshot, memory: Any, idle: IntArray) -> Placements:
        before, seen = _line(memory), _contents(snap)
        more: Placements = original.refill(self, snap, memory, idle)
        require(_line(memory) == before, "refill changed its memory", snap)
        require(_contents(snap) == seen, "refill changed the snapshot", snap)
        check_refill(snap, idle, more, jobs)
        return more

    members: dict[str, object] = {"plan": plan, "__slots__": ()}
    if warms:
        members["plan_warm"] = plan_warm
    if hasattr(original, "refill"):
        members["refill"] = refill
    checked = copy.copy(mechanism)
    derived = type(f"Checked{original.__name__}", (original,), members)
    object.__setattr__(checked, "__class__", derived)
    return checked


def _alike(a: Any, b: Any) -> bool:
    """Return whether two decoded lines agree; a warm-started solver may round differently."""
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
