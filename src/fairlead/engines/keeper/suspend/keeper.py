"""A keeper that suspends processes which do not use the library, by the CUDA driver.

Instead of the stop signal such a process is suspended: the driver moves its device memory to the
host, and the keeper freezes it. From then on it is a parked process that has nothing to save. If
it cannot be suspended, it gets the stop signal. See docs/design/offload.md.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper.confinement.host_memory import available_gib
from fairlead.engines.keeper.growth.keeper import GrowingKeeper
from fairlead.engines.keeper.keeper import run_lease
from fairlead.engines.keeper.orphans import processes_of, reap_adopted
from fairlead.engines.keeper.parking import exit_reasons
from fairlead.engines.keeper.parking.parked import may_park_alone
from fairlead.engines.keeper.stop_handler import has_stop_handler
from fairlead.engines.keeper.suspend.call import DriverCall

_TICK_S = 0.25
_MAX_RESUME_S = 600.0


class SuspendingKeeper(GrowingKeeper):
    """Runs processes that park by themselves or are suspended by the driver."""

    def __init__(self, directory: Path, order: LaunchOrder) -> None:
        super().__init__(directory, order)
        self._call: DriverCall | None = None
        """call of the driver that suspends the processes"""
        self._is_suspended = False
        self._on_host: tuple[int, ...] = ()
        """CUDA processes whose device memory is on the host"""
        self._refusal = ""
        """reason for which the processes cannot be suspended"""

    def tick(self) -> None:
        """Suspend a process that must leave, step by step."""
        super().tick()
        if self._call is not None:
            if self._call.has_ended:
                self._end_suspension()
        elif self._may_suspend():
            self._begin_suspension()

    def _forward_stop(self) -> None:
        """Send the stop unless the process is suspended instead."""
        if not self._is_parked and self._call is None and not self._may_suspend():
            super()._forward_stop()

    def _may_suspend(self) -> bool:
        """Return whether to try to suspend the processes: they must leave, and are unmodified."""
        order = self._order
        return (
            self._signalled == set()
            and not (self._stop_reason or self._refusal or self._uses_library)
            and self.on_devices()
            and bool(order.visible)
            and order.offload_gib > 0
            and may_park_alone(order)
        )

    def _begin_suspension(self) -> None:
        order = self._order
        self._refusal = self._obstacle()
        if self._refusal:
            self._note_refusal()
            return
        limit_gib = min(order.offload_gib, order.memory_gib or order.offload_gib)
        room_gib = min(limit_gib - self._measure_memory(), available_gib())
        pids = sorted(processes_of(order))
        lock_ms = int(order.grace_s * 500)  # half of the grace
        self._call = DriverCall("suspend", lock_ms, room_gib, order.visible[0], *pids)
        self._output.watch(self._call.fileno(), self._call.read)

    def _obstacle(self) -> str:
        """Return the reason for which the driver need not be asked, empty without one."""
        if self._order.visible[0].startswith("MIG-"):
            return "the driver suspends no process on a MIG device"
        if not self._server_lives():
            return exit_reasons.SERVER_ENDED
        handlers = [one.pid for one in self._members if has_stop_handler(one.pid)]
        return f"process {handlers[0]} handles SIGTERM itself" if handlers else ""

    def _end_suspension(self) -> None:
        assert self._call is not None
        self._output.unwatch(self._call.fileno())
        pids, seconds, self._refusal = self._call.close()
        self._call = None
        used_gib, limit_gib = self._measure_memory(), self._order.offload_gib
        if not self._refusal and used_gib > limit_gib:
            self._refusal = exit_reasons.too_large(used_gib, limit_gib)
        if self._refusal or not self.on_devices():
            self._note_refusal()
            return
        self._is_suspended, self._on_host = True, tuple(pids)
        self._output.note(f"fairlead: suspended in {seconds:.2f} s")
        self._is_parked, self._unsaved = True, None

    def _note_refusal(self) -> None:
        if self._refusal:
            self._note_exit(f"transparent suspend: {self._refusal}")

    def _conclude(self) -> Ended:
        ended = super()._conclude()
        if not (ended.parked and self._is_suspended):
            return ended
        # Without a checkpoint the steps are those that the process has printed.
        return replace(ended, steps=self._checkpointed_steps(), suspended=True)

    def _return_to_device(self) -> str:
        """Move the device memory of suspended processes back; return the problem, if any."""
        self._is_suspended, pids, self._on_host = False, self._on_host, ()
        if not pids:  # it parks by itself, or had not begun to use its device
            return ""
        call, until = DriverCall("resume", *pids), time.monotonic() + _MAX_RESUME_S
        self._output.watch(call.fileno(), call.read)
        while not call.has_ended and time.monotonic() < min(until, self._kill_at):
            self._output.copy(_TICK_S)
            reap_adopted({call.pid, *(member.pid for member in self._members)})
        self._output.unwatch(call.fileno())
        _, seconds, problem = call.close()
        if problem:
            return f"its process cannot be resumed: {problem}"
        self._output.note(f"fairlead: resumed in {seconds:.2f} s")
        return ""


def main() -> int:
    """Run the leases that begin in the directory that is the argument."""
    return run_lease(Path(sys.argv[1]), SuspendingKeeper)


if __name__ == "__main__":
    sys.exit(main())
