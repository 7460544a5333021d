"""The event log: one JSON line per event, from which a run can be replayed."""

import json
from collections.abc import Iterable
from dataclasses import Field, fields, is_dataclass
from functools import cache
from typing import Any, get_args

import numpy as np

from fairlead.core.scheduler import Scheduler
from fairlead.model import events as ev
from fairlead.model.cluster import Node
from fairlead.model.errors import ProtocolError
from fairlead.model.job import OMIT_IF_NONE, Job
from fairlead.model.lease import Placements
from fairlead.model.plan import Plan
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.usage_decay import History

_JSON_TYPES = frozenset({str, float, int, bool, type(None)})
_LOGGED_TYPES: tuple[type, ...] = (
    *get_args(ev.Event),
    Job,
    Tenant,
    History,
    Node,
    Plan,
    Placements,
)


def wire_name(logged: type) -> str:
    """Return the name of a class in the event log: its ``WIRE_NAME``, else its own name.

    A class that is renamed keeps its old name as ``WIRE_NAME``, so that old logs stay readable
    and new ones byte-identical. Subclasses do not inherit it.
    """
    return str(vars(logged).get("WIRE_NAME", logged.__name__))


def encode_event(event: ev.Event) -> str:
    """Return the event as one line of JSON; floats keep every bit."""
    return json.dumps(encode_value(event), separators=(",", ":"))


def decode_event(line: str, memory_type: type) -> ev.Event:
    """Return the event that ``line`` encodes; the mechanism's memory has this type."""
    event: ev.Event = decode_value(json.loads(line), memory_type)
    return event


def replay(scheduler: Scheduler[Any], lines: Iterable[str]) -> Scheduler[Any]:
    """Feed a log to a new scheduler: it reaches the same state, without planner or clock."""
    memory_type = type(scheduler.memory)
    for line in lines:
        scheduler.handle(decode_event(line, memory_type))
    return scheduler


def encode_value(value: object) -> Any:
    """Return a model value as plain JSON; arrays and dataclasses are tagged with their type."""
    kind: Any = type(value)
    if kind in _JSON_TYPES:
        return value
    if isinstance(value, np.ndarray):
        return {"array": value.dtype.str, "shape": value.shape, "values": value.ravel().tolist()}
    if isinstance(value, (tuple, list)):
        return [item if type(item) in _JSON_TYPES else encode_value(item) for item in value]
    if isinstance(value, dict):
        return {key: encode_value(item) for key, item in value.items()}
    if (logged_fields := _fields(kind)) is not None:
        encoded: dict[str, Any] = {"is": wire_name(kind)}
        for field in logged_fields:
            member = getattr(value, field.name)
            if not field.metadata or _is_written(field, member):
                encoded[field.name] = encode_value(member)
        return encoded
    if isinstance(value, np.generic):
        return value.item()
    return value


@cache
def _fields(kind: type) -> "tuple[Field[Any], ...] | None":
    """Return the fields of a dataclass, None for another class."""
    return fields(kind) if is_dataclass(kind) else None


def _is_written(field: "Field[Any]", value: object) -> bool:
    """Return whether a field is logged that is omitted while it is empty or None."""
    return value is not None if field.metadata == OMIT_IF_NONE else bool(value)


def decode_value(value: Any, memory_type: type) -> Any:
    """Return the value that ``encode_value`` encoded; the mechanism's memory has this type."""
    return _decode(value, _LOGGED | {wire_name(memory_type): memory_type})


def _by_wire_name(logged: Iterable[type]) -> dict[str, type]:
    """Return wire name → class; a class with that very name wins over one that borrows it."""
    logged = tuple(logged)
    borrowed = {wire_name(each): each for each in logged}
    return borrowed | {each.__name__: each for each in logged if wire_name(each) == each.__name__}


_LOGGED = _by_wire_name(_LOGGED_TYPES)


def _decode(value: Any, known: dict[str, type]) -> Any:
    if isinstance(value, list):
        return tuple(_decode(item, known) for item in value)
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return np.array(value["values"], dtype=value["array"]).reshape(value["shape"])
    name = value.pop("is", None)
    members = {key: _decode(item, known) for key, item in value.items()}
    if name is None:
        return members
    if name not in known:
        raise ProtocolError(f"unknown type in the event log: {name!r}")
    return known[name](**members)
