"""Physics by name, or from a JSON or YAML file."""

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

from fairlead.files.parsing import strict_json
from fairlead.files.parsing.fields import number, unknown, whole
from fairlead.files.parsing.text import read_text
from fairlead.model.errors import InputError
from fairlead.sim.physics.effects import (
    EFFECTS,
    OTHERS,
    Contention,
    Costs,
    Locality,
    Physics,
    Topology,
    WorkloadPhysics,
)
from fairlead.sim.physics.gandiva import gandiva_physics

T = TypeVar("T", Costs, Locality, Contention)

NAMED: dict[str, Callable[[], Physics | None]] = {
    "none": lambda: None,
    "gandiva": gandiva_physics,
}
_RANGE: dict[type, tuple[float, float]] = {
    Costs: (0.0, math.inf),
    Locality: (0.0, 1.0),
    Contention: (0.0, 1.0),
}
_PARTS: dict[str, type] = {
    "costs": Costs,
    "locality": Locality,
    "switch": Contention,
    "network": Contention,
}
_NUMBERS = {
    "packed": (0.0, math.inf),
    "scaling": (0.0, 1.0),
    "utilization": (0.0, 1.0),
    "memory_gib": (0.0, math.inf),
}


def read_physics(spec: str) -> Physics | None:
    """Return the physics that ``spec`` names, or that the file of this name describes."""
    if spec in NAMED:
        return NAMED[spec]()
    from fairlead.files.parsing.document import parse_document  # noqa: PLC0415 - yaml is slow

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
        raise unknown("physics", base, NAMED).within(field="base")
    physics = NAMED[base]() or Physics()
    if "effects" in top:
        physics = replace(physics, effects=_effects(top["effects"]))
    if "topology" in top:
        physics = replace(physics, topology=_topology(top["topology"], physics.topology))
    given = strict_json.mapping(top.get("workloads", {}))
    natures = dict(physics.natures)
    for workload, value in sorted(given.items(), key=lambda item: item[0] != OTHERS):
        known = natures.get(workload, natures.get(OTHERS, WorkloadPhysics()))
        try:
            natures[workload] = _nature(value, known)
        except InputError as error:
            where = f"workloads.{workload}" + (f".{error.field}" if error.field else "")
            raise InputError(error.problem, fix=error.fix, field=where) from None
    return replace(physics, natures=natures)


def _effects(value: object) -> frozenset[str]:
    if not isinstance(value, (list, tuple)):
        raise InputError("effects is not a list", fix=f"list some of {', '.join(EFFECTS)}")
    names = [str(item) for item in value]
    for name in names:
        if name not in EFFECTS:
            raise unknown("effect", name, EFFECTS).within(field="effects")
    return frozenset(names)


def _topology(value: object, known: Topology) -> Topology:
    names = [part.name for part in fields(Topology)]
    found = strict_json.members(value, required=(), optional=names)
    sizes = {name: whole(size) for name, size in found.items()}
    for name, size in sizes.items():
        if size < 1:
            raise InputError(f"{size} is not possible", fix="give 1 or more", field=name)
    return replace(known, **sizes)


def _nature(value: object, known: WorkloadPhysics) -> WorkloadPhysics:
    found = strict_json.members(value, required=(), optional=[*_PARTS, *_NUMBERS])
    changed: dict[str, Any] = {}
    for name, given in found.items():
        if name in _NUMBERS:
            changed[name] = _within(given, _NUMBERS[name], name, open_below=name != "utilization")
        else:
            changed[name] = _part(given, getattr(known, name), name)
    return replace(known, **changed)


def _part(value: object, known: T, name: str) -> T:
    names = [part.name for part in fields(known)]
    found = strict_json.members(value, required=(), optional=names)
    limits = _RANGE[type(known)]
    numbers = {part: _within(v, limits, f"{name}.{part}") for part, v in found.items()}
    return replace(known, **numbers)


def _within(
    value: object, limits: tuple[float, float], field: str, *, open_below: bool = False
) -> float:
    try:
        found = number(value)
    except InputError as error:
        raise error.within(field=field) from None
    low, high = limits
    if not low <= found <= high or (open_below and found == low):
        wanted = f"above {low:g}" if open_below else f"from {low:g}"
        wanted += f" up to {high:g}" if high < math.inf else ""
        raise InputError(f"{found:g} is not possible", fix=f"give a number {wanted}", field=field)
    return found
