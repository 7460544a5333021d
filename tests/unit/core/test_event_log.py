"""Renamed classes keep their names in the event log."""

from dataclasses import dataclass
from typing import ClassVar, get_args

import pytest

from fairlead.core.event_log import (
    decode_event,
    decode_value,
    encode_event,
    encode_value,
    wire_name,
)
from fairlead.model import events as ev
from fairlead.model.errors import ProtocolError


@dataclass(frozen=True)
class RenamedMemory:
    """A mechanism's memory that was once called ``OldMemory``."""

    WIRE_NAME: ClassVar[str] = "OldMemory"

    rounds: int = 0


@dataclass(frozen=True)
class ExtendedMemory(RenamedMemory):
    """A subclass, which does not inherit the wire name."""

    extra: int = 0


def test_renamed_class_is_logged_under_its_old_name() -> None:
    encoded = encode_value(RenamedMemory(3))
    assert encoded == {"is": "OldMemory", "rounds": 3}
    assert decode_value(encoded, RenamedMemory) == RenamedMemory(3)


def test_subclass_is_logged_under_its_own_name() -> None:
    encoded = encode_value(ExtendedMemory(3, 1))
    assert encoded["is"] == "ExtendedMemory"
    assert decode_value(encoded, ExtendedMemory) == ExtendedMemory(3, 1)


def test_drained_node_is_logged_as_a_lost_node() -> None:
    line = encode_event(ev.NodeDrained(5.0, "n1"))
    assert line == encode_event(ev.NodeLost(5.0, "n1"))
    assert decode_event(line, int) == ev.NodeLost(5.0, "n1")


def test_only_drained_nodes_borrow_a_wire_name() -> None:
    events = get_args(ev.Event)
    assert [each for each in events if wire_name(each) != each.__name__] == [ev.NodeDrained]


def test_unknown_type_is_rejected() -> None:
    with pytest.raises(ProtocolError, match="unknown type in the event log: 'Nonsense'"):
        decode_event('{"is":"Nonsense","at":0.0}', int)
