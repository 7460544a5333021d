"""The keeper of a successor: a process that is started before its first lease.

It starts the process as for a lease, but without a number, a token and the fence of one. The
process imports its libraries and waits when it attaches. From then on it is treated like a parked
process that has made no step. See docs/design/offload.md.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fairlead import failpoints
from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.confinement.host_memory import used_memory_gib
from fairlead.engines.keeper.growth.keeper import GrowingKeeper
from fairlead.engines.keeper.launch_failure import LaunchFailedError
from fairlead.engines.keeper.orphans import reap_adopted
from fairlead.engines.keeper.parking.early_start import (
    MAX_START_S,
    begin_with_early_output,
    open_early_log,
)
from fairlead.engines.keeper.secrets import RedactedLog
from fairlead.job import checkpoint
from fairlead.job.keeper.successor import VARIABLE
from fairlead.model.errors import InputError

_TICK_S = 0.25


class SuccessorKeeper(GrowingKeeper):
    """Starts a process early and runs the leases that it gets."""

    def __init__(self, directory: Path, order: LaunchOrder) -> None:
        super().__init__(directory, order)
        self._had_lease = False

    def prepare(self) -> None:
        """Start the process, and run its leases until it ends or must."""
        self._wake_up_at_signals()
        try:
            with suppress(OSError, InputError, LaunchFailedError, checkpoint.FencedError):
                self._is_parked = self._start_early()
        finally:
            self.stay()

    def member_channel(self) -> tuple[Mapping[str, str], Sequence[int]]:
        """Return the variables and the descriptor by which the process waits for its lease.

        Members by which its gang grows later have one when they start.
        """
        variables, descriptors = super().member_channel()
        waits = {VARIABLE: "1"} if self._directory == self._home else {}
        return {**variables, **waits}, descriptors

    def _start_early(self) -> bool:
        """Start the process and freeze it once it waits; return whether it does."""
        self._confinement.prepare(in_cgroup=self.in_cgroup)
        self._handle_signals()
        self._begin()
        if not self._wait_until_ready():
            return False
        self._confinement.freeze(True)
        self._output.copy(0.0)
        failpoints.point("keeper.prepare.ready")
        sessions, limit_gib = {member.pid for member in self._members}, self._order.offload_gib
        self._used_gib = used_memory_gib(sessions, exact_above_gib=limit_gib)
        if self._used_gib > limit_gib:
            return False
        self._note_parked()
        failpoints.point("keeper.prepare.noted")
        return True

    def _wait_until_ready(self) -> bool:
        until = time.monotonic() + MAX_START_S
        while not all(one.is_ready for one in self._dialogues):
            alive = self.on_devices() and self._server_lives()
            if self._stopping or not alive or time.monotonic() > until:
                return False
            self._output.copy(_TICK_S)
            reap_adopted({member.pid for member in self._members})
            self._check_members(is_late=False)
        return True

    def _open_log(self, index: int) -> RedactedLog:
        """Return the log of the present lease, which begins with the output before it."""
        if self._directory == self._home:
            return open_early_log(self._home, index)
        log = super()._open_log(index)
        return log if self._had_lease else begin_with_early_output(log, self._home, index)


def main() -> int:
    """Start the process that the order in a directory, the argument, describes."""
    directory = Path(sys.argv[1])
    lock = lease_dir.try_lock(directory)
    if lock is not None:
        with lock:
            failpoints.point("keeper.prepare.begins")
            SuccessorKeeper(directory, lease_dir.read_order(directory)).prepare()
    return 0


if __name__ == "__main__":
    sys.exit(main())
