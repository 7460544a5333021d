"""The keeper of one node's part of a lease on Ray, started by the node agent.

It extends the keeper of a single machine: it reads stop requests with their grace and reason from
the file ``stop`` in its lease directory, and it stops its members when the node's raylet dies,
because a restarted raylet considers all devices of the node free.
``python -m fairlead.engines.ray.keeper DIRECTORY``.
"""

import os
import select
import sys
import time
from pathlib import Path

from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.keeper import Keeper, run_lease

RAYLET_PID_VARIABLE = "FAIRLEAD_RAYLET_PID"
"""environment variable with the process ID of the node's raylet"""
_GRACE_AFTER_RAYLET_S = 2.0
"""seconds that members have for a checkpoint after their node's raylet died"""


class RayKeeper(Keeper):
    """Supervises the members of a gang on one Ray node."""

    in_cgroup = False  # members stay in the groups of Ray's worker

    def __init__(self, directory: Path, order: LaunchOrder) -> None:
        super().__init__(directory, order)
        self._grace_s: float | None = None
        self._kill_after_raylet = select.poll()
        try:
            raylet = os.pidfd_open(int(os.environ[RAYLET_PID_VARIABLE]))
            self._kill_after_raylet.register(raylet, select.POLLIN)
            self._raylet = True
        except ProcessLookupError:
            self._raylet = False

    def wait_for_gang(self) -> bool:
        """Start nothing on a node whose raylet is already dead."""
        self.tick()
        return super().wait_for_gang()

    def tick(self) -> None:
        """Check for stop requests and for the death of the raylet."""
        self._check_stop_request()
        if not self._raylet or self._kill_after_raylet.poll(0):
            self._stop("")
            self._kill_at = min(self._kill_at, time.monotonic() + _GRACE_AFTER_RAYLET_S)
            self._raylet = True
            self._kill_after_raylet = select.poll()

    def _on_stop(self, *_: object) -> None:
        self._check_stop_request()
        self._stop("")

    def _check_stop_request(self) -> None:
        request = lease_dir.read_stop(self._directory)
        if request is None:
            return
        self._stop(request.why)
        if request.grace_s != self._grace_s:
            self._grace_s = request.grace_s
            self._kill_at = min(self._kill_at, time.monotonic() + self._grace_s)


def main() -> int:
    """Run the part of a lease in the given directory."""
    return run_lease(Path(sys.argv[1]), RayKeeper)


if __name__ == "__main__":
    sys.exit(main())
