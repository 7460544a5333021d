"""The event log: one JSON line for each event, from which a run can be replayed."""

import json
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any, get_args

import numpy as np

from fairlead.core.scheduler import Scheduler
from fairlead.model import events as ev
from fairlead.model.cluster import Node
from fairlead.model.errors import ProtocolError
from fairlead.model.job import Job, Tenant
from fairlead.model.lease import Placements
from fairlead.model.plan import Plan
from fairlead.model.tenants.usage_decay import History

_PLAIN = frozenset({str, float, int, bool, type(None)})
_LOGGED_TYPES: tuple[type, ...] = (
    *get_args(ev.Event),
    Job,
    Tenant,
    History,
    Node,
    Plan,
    Placements,
)


def encode_event(event: ev.Event) -> str:
    """Return the event as one line of JSON; floats keep every bit."""
    return json.dumps(encode_value(event), separators=(",", ":"))


def decode_event(line: str, memory_type: type) -> ev.Event:
    """Return the event that ``line`` encodes; the mechanism's memory has this type."""
    event: ev.Event = decode_value(json.loads(line), memory_type)
    return event


def replay(scheduler: Scheduler[Any], lines: Iterable[str]) -> Scheduler[Any]:
    """Feed a log to a new scheduler: the same state follows, without planner or clock."""
    memory_type = type(scheduler.memory)
    for line in lines:
        scheduler.handle(decode_event(line, memory_type))
    return scheduler


def encode_value(value: object) -> Any:
    """Return a value of the model in plain JSON; arrays and dataclasses say what they are."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.ndarray):
        return {"array": value.dtype.str, "shape": value.shape, "values": value.ravel().tolist()}
    if is_dataclass(value) and not isinstance(value, type):
        # Fields with metadata are left out while they are empty (model.job.OMIT_IF_EMPTY).
        written = [f.name for f in fields(value) if not f.metadata or getattr(value, f.name)]
        members = {name: encode_value(getattr(value, name)) for name in written}
        return {"is": type(value).__name__, **members}
    if isinstance(value, dict):
        return {key: encode_value(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode_value(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def decode_value(value: Any, memory_type: type) -> Any:
    """Return what ``encode_value`` was given; the mechanism's memory has this type."""
    return _decode(value, {kind.__name__: kind for kind in (*_LOGGED_TYPES, memory_type)})


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
        raise ProtocolError(f"the log holds a {name!r}, which this scheduler does not know")
    return known[name](**members)
