"""Outages of nodes: the times for which they were lost, drained or removed."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fairlead.model import events as ev

_DOWN = (ev.NodeLost, ev.NodeDrained, ev.NodeRemoved)


class Outage(NamedTuple):
    """One node, and the time for which it was down."""

    node: str
    began_at: float
    ended_at: float
    """for an outage that lasts, the time up to which this is known"""


class NodeOutages:
    """Outages by node, from events alone: a replay of the event log gives the same ones."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        """node that is down → since when"""
        self.ended: deque[Outage] = deque()
        """outages that have ended, for the timeline"""

    def record(self, event: ev.Event) -> None:
        """Begin or end an outage."""
        if isinstance(event, _DOWN):
            self._began.setdefault(event.node, event.at)
        elif isinstance(event, ev.NodeReturned) and event.node in self._began:
            self.ended.append(Outage(event.node, self._began.pop(event.node), event.at))

    def open(self, at: float) -> Iterator[Outage]:
        """Yield the outages that have lasted until ``at``."""
        for node, began_at in self._began.items():
            yield Outage(node, began_at, max(began_at, at))

    def saved(self) -> dict[str, float]:
        """Return the outages that last, for ``restore``."""
        return dict(self._began)

    def restore(self, saved: Mapping[str, float]) -> None:
        """Take the outages that ``saved`` returned."""
        self._began = {node: float(at) for node, at in saved.items()}


def as_json(outages: Sequence[Outage]) -> dict[str, Any]:
    """Return outages as columns, with times exact to milliseconds."""
    return {
        "node": [outage.node for outage in outages],
        "began": [round(outage.began_at, 3) for outage in outages],
        "ended": [round(outage.ended_at, 3) for outage in outages],
    }


def from_json(saved: Mapping[str, Any]) -> list[Outage]:
    """Return the outages that ``as_json`` returned."""
    columns = zip(saved["node"], saved["began"], saved["ended"], strict=True)
    return [Outage(str(node), float(began), float(ended)) for node, began, ended in columns]


def joined(outages: Iterable[Outage]) -> list[Outage]:
    """Return one outage per node and begin, its last one: each hour has those that last."""
    return list({(each.node, round(each.began_at, 3)): each for each in outages}.values())
