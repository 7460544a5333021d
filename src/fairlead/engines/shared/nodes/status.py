"""What was told of each node, that it is down or back, across restarts of the scheduler."""

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.engines.base import NodeDown, NodeUp

_CONFIRMED_AFTER_S = 60.0
"""by then a report has been written down by whoever it was for"""


@dataclass
class NodeStatus:
    """Tells what is new, once; after a restart again, as whoever was told may have forgotten."""

    path: Path
    """where it is written down"""
    down: set[str] = field(default_factory=set, init=False)
    """told to be down"""
    _unconfirmed: set[str] = field(default_factory=set, init=False)
    """of which nobody knows what was told last"""
    _back: dict[str, float] = field(default_factory=dict, init=False)
    """node → when it was told to be back"""

    def recall(self) -> None:
        """Take up from before a restart: what was told to be down then is told again, or is back.

        Whoever was told may have forgotten; those that were not told do not hear of nodes twice.
        """
        with suppress(FileNotFoundError):
            self._unconfirmed = set(json.loads(self.path.read_text(encoding="utf-8")))

    def standing(self, name: str, up: bool, now: float) -> list[NodeDown | NodeUp]:
        """Return what there is to tell of a node that can or cannot be used."""
        self._forget(now)
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

    def _forget(self, now: float) -> None:
        old = [name for name, at in self._back.items() if now - at > _CONFIRMED_AFTER_S]
        for name in old:
            del self._back[name]
        if old:
            self._write()

    def _write(self) -> None:
        aside = self.path.with_suffix(".tmp")
        aside.write_text(json.dumps(sorted(self.down | set(self._back))), encoding="utf-8")
        aside.replace(self.path)
