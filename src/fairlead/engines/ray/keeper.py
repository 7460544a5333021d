"""The keeper of one node's part of a lease, started by the node's supervising actor.

It does what a keeper does on one machine. Besides, it heeds a ``stop`` in its directory that says
with how much grace and why, and it ends its members when the Ray of its node dies: Ray, when it is
started again, takes all devices of the node for free.
``python -m fairlead.engines.ray.keeper DIRECTORY``.
"""

import os
import select
import sys
import time
from pathlib import Path

from fairlead.engines.base import Order
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.keeper import Keeper, keep

RAYLET = "FAIRLEAD_RAYLET_PID"
"""where a keeper finds the process number of its node's Ray"""
_GRACE_AFTER_RAYLET_S = 2.0
"""how long members have to save when the Ray of their node is dead"""


class RayKeeper(Keeper):
    """Keeps the members of a gang that run on one node of Ray."""

    def __init__(self, directory: Path, order: Order) -> None:
        super().__init__(directory, order)
        self._grace_s: float | None = None
        self._kill_after_raylet = select.poll()
        try:
            self._kill_after_raylet.register(os.pidfd_open(int(os.environ[RAYLET])), select.POLLIN)
            self._raylet = True
        except ProcessLookupError:
            self._raylet = False

    def gather(self) -> bool:
        """Start nothing on a node whose Ray is dead already."""
        self.tick()
        return super().gather()

    def tick(self) -> None:
        """Look whether to stop, and whether Ray lives."""
        self._heed_stop()
        if not self._raylet or self._kill_after_raylet.poll(0):
            self._stop("")
            self._kill_at = min(self._kill_at, time.monotonic() + _GRACE_AFTER_RAYLET_S)
            self._raylet = True
            self._kill_after_raylet = select.poll()

    def _on_stop(self, *_: object) -> None:
        self._heed_stop()
        self._stop("")

    def _heed_stop(self) -> None:
        found = lease_dir.read_json(self._directory / "stop")
        if found is None:
            return
        self._stop(str(found["why"]))
        if found["grace_s"] != self._grace_s:
            self._grace_s = float(found["grace_s"])
            self._kill_at = min(self._kill_at, time.monotonic() + self._grace_s)


def main() -> int:
    """Keep the part of a lease whose directory is given."""
    return keep(Path(sys.argv[1]), RayKeeper)


if __name__ == "__main__":
    sys.exit(main())
