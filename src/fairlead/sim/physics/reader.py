"""Reader of physics, by name or from a JSON or YAML file."""

import math
import os
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

from fairlead.files.parsing import strict_json
from fairlead.files.parsing.fields import number, unknown_name_error, whole_number
from fairlead.files.parsing.text import read_text
from fairlead.model.errors import InputError
from fairlead.sim.physics.effects import (
    EFFECTS,
    OTHER_WORKLOADS,
    ContentionProfile,
    Locality,
    Physics,
    Topology,
    TransitionCosts,
    WorkloadPhysics,
)
from fairlead.sim.physics.gandiva import gandiva_physics

T = TypeVar("T", TransitionCosts, Locality, ContentionProfile)

NAMED: dict[str, Callable[[], Physics | None]] = {
    "none": lambda: None,
    "gandiva": gandiva_physics,
}
_RANGE: dict[type, tuple[float, float]] = {
    TransitionCosts: (0.0, math.inf),
    Locality: (0.0, 1.0),
    ContentionProfile: (0.0, 1.0),
}
_PARTS: dict[str, type] = {
    "costs": TransitionCosts,
    "locality": Locality,
    "switch": ContentionProfile,
    "network": ContentionProfile,
}
_NUMBERS = {
    "packed": (0.0, math.inf),
    "scaling": (0.0, 1.0),
    "utilization": (0.0, 1.0),
    "memory_gib": (0.0, math.inf),
}


def read_physics(spec: str) -> Physics | None:
    """Return the physics named ``spec``, or read it from the file of this name."""
    if spec in NAMED:
        return NAMED[spec]()
    from fairlead.files.parsing.document import parse_document  # noqa: PLC0415 - yaml is slow

    if not os.path.exists(spec):
        fix = f"expected {', '.join(NAMED)}, or a JSON or YAML file"
        raise InputError("no such file", fix=fix, source=spec)
    text = read_text(spec)
    try:
        return _physics(parse_document(text, "effects and workloads"))
    except InputError as error:
        raise error.within(source=text.name) from None


def _physics(document: object) -> Physics:
    top = strict_json.members(
        document, required=(), optional=("base", "effects", "topology", "workloads")
    )
    base = str(top.get("base", "none"))
    if base not in NAMED:
        raise unknown_name_error("physics", base, NAMED).within(field="base")
    physics = NAMED[base]() or Physics()
    if "effects" in top:
        physics = replace(physics, effects=_effects(top["effects"]))
    if "topology" in top:
        physics = replace(physics, topology=_topology(top["topology"], physics.topology))
    listed = strict_json.mapping(top.get("workloads", {}))
    by_workload = dict(physics.by_workload)
    for workload, value in sorted(listed.items(), key=lambda item: item[0] != OTHER_WORKLOADS):
        known = by_workload.get(workload, by_workload.get(OTHER_WORKLOADS, WorkloadPhysics()))
        try:
            by_workload[workload] = _workload_physics(value, known)
        except InputError as error:
            where = f"workloads.{workload}" + (f".{error.field}" if error.field else "")
            raise InputError(error.problem, fix=error.fix, field=where) from None
    return replace(physics, by_workload=by_workload)


def _effects(value: object) -> frozenset[str]:
    if not isinstance(value, (list, tuple)):
        raise InputError(
            "not a list", fix=f"expected some of {', '.join(EFFECTS)}", field="effects"
        )
    names = [str(item) for item in value]
    for name in names:
        if name not in EFFECTS:
            raise unknown_name_error("effect", name, EFFECTS).within(field="effects")
    return frozenset(names)


def _topology(value: object, known: Topology) -> Topology:
    names = [part.name for part in fields(Topology)]
    members = strict_json.members(value, required=(), optional=names)
    sizes = {name: whole_number(size) for name, size in members.items()}
    for name, size in sizes.items():
        if size < 1:
            raise InputError(f"out of range: {size}", fix="expected 1 or more", field=name)
    return replace(known, **sizes)


def _workload_physics(value: object, known: WorkloadPhysics) -> WorkloadPhysics:
    members = strict_json.members(value, required=(), optional=[*_PARTS, *_NUMBERS])
    changed: dict[str, Any] = {}
    for name, new in members.items():
        if name in _NUMBERS:
            changed[name] = _within(new, _NUMBERS[name], name, open_below=name != "utilization")
        else:
            changed[name] = _part(new, getattr(known, name), name)
    return replace(known, **changed)


def _part(value: object, known: T, name: str) -> T:
    names = [part.name for part in fields(known)]
    members = strict_json.members(value, required=(), optional=names)
    limits = _RANGE[type(known)]
    numbers = {part: _within(v, limits, f"{name}.{part}") for part, v in members.items()}
    return replace(known, **numbers)


def _within(
    value: object, limits: tuple[float, float], field: str, *, open_below: bool = False
) -> float:
    try:
        parsed = number(value)
    except InputError as error:
        raise error.within(field=field) from None
    low, high = limits
    if not low <= parsed <= high or (open_below and parsed == low):
        wanted = f"above {low:g}" if open_below else f"from {low:g}"
        wanted += f" up to {high:g}" if high < math.inf else ""
        raise InputError(
            f"out of range: {parsed:g}", fix=f"expected a number {wanted}", field=field
        )
    return parsed
