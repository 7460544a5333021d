"""Persistent node status: the nodes reported as down, across restarts of the scheduler."""

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.atomic_file import replace_text
from fairlead.engines.base import NodeDown, NodeUp

_CONFIRMED_AFTER_S = 60.0
"""seconds after which the scheduler has surely persisted a report"""


@dataclass
class NodeStatus:
    """Reports each change of a node once, and again after a restart.

    A scheduler that crashed may not have persisted the last report.
    """

    path: Path
    """file that keeps the nodes reported as down"""
    down: set[str] = field(default_factory=set, init=False)
    """nodes reported as down"""
    _unconfirmed: set[str] = field(default_factory=set, init=False)
    """nodes whose last report an earlier scheduler may not have persisted"""
    _back: dict[str, float] = field(default_factory=dict, init=False)
    """node → time at which it was reported as up again"""

    def load(self) -> None:
        """Load the nodes reported as down before a restart, so that they are reported again."""
        with suppress(FileNotFoundError):
            self._unconfirmed = set(json.loads(self.path.read_text(encoding="utf-8")))

    def record(self, name: str, up: bool, now: float) -> list[NodeDown | NodeUp]:
        """Record whether a node is usable; return the report to send, if any."""
        self._drop_confirmed(now)
        if up != (name in self.down) and name not in self._unconfirmed:
            return []
        self._unconfirmed.discard(name)
        if up:
            self.down.discard(name)
            self._back[name] = now
        else:
            self.down.add(name)
            self._back.pop(name, None)
        self._write()
        return [NodeUp(name) if up else NodeDown(name)]

    def repeat_if_down(self, name: str) -> None:
        """Report a node again at its next record if it is down: it has gained devices."""
        if name in self.down:
            self._unconfirmed.add(name)

    def _drop_confirmed(self, now: float) -> None:
        confirmed = [name for name, at in self._back.items() if now - at > _CONFIRMED_AFTER_S]
        for name in confirmed:
            del self._back[name]
        if confirmed:
            self._write()

    def _write(self) -> None:
        replace_text(self.path, json.dumps(sorted(self.down | set(self._back))))
