"""A keeper whose processes may stay after their lease, and continue under the job's next one.

A process asks before it gives up its device (``answers.py``). The keeper reports the end of the
lease once all have left their devices. It freezes them once they have committed their last steps,
and kills them if that takes longer than the lease's grace. It lives as long as they do, in the
directory of the first lease. See docs/design/offload.md.
"""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fairlead import failpoints
from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.environment import HeldPorts, member_environment
from fairlead.engines.keeper.orphans import kill_tree, reap_adopted
from fairlead.engines.keeper.output import EXIT_POLL_S
from fairlead.engines.keeper.parking.answers import AnsweringKeeper
from fairlead.engines.keeper.parking.parked import take_next
from fairlead.engines.keeper.start import WAKE_SIGNAL
from fairlead.job import checkpoint
from fairlead.job.committed import CommittedCheckpoint
from fairlead.job.keeper.channel import RENDEZVOUS
from fairlead.untrusted_file import UnusableFileError

_TICK_S = 0.25
_MAX_PARKED_S = 3600.0


class ParkingKeeper(AnsweringKeeper):
    """Runs the processes of one order, and of later orders of its job on the same devices."""

    def __init__(self, directory: Path, order: LaunchOrder) -> None:
        super().__init__(directory, order)
        self._save_by = float("inf")
        """time at which the parked processes are killed unless they have saved their steps"""
        self._committed: CommittedCheckpoint | None = None
        """checkpoint of the parked processes"""
        self._had_lease = True
        """the processes have run under a lease, and have their state in memory"""

    def run(self) -> Ended:
        """Start the processes and return the end of their first lease."""
        self._wake_up_at_signals()
        try:
            return self._run()
        finally:
            if not self._is_parked:
                self._confinement.kill_and_remove()

    def stay(self) -> None:
        """Run the leases that the parked processes get, until they end or must."""
        try:
            while self._is_parked:
                directory = self._wait_for_lease()
                if directory is None:
                    return
                self._run_next(directory)
        finally:
            self._kill()
            self._wait_for_members()
            self._kill_descendants()

    # -- parked ---------------------------------------------------------------------------------

    def on_devices(self) -> bool:
        """Return whether a process uses its device."""
        return not self._is_parked and super().on_devices()

    def _conclude(self) -> Ended:
        if not self._is_parked:
            return super()._conclude()
        order = self._order
        # From now on a stop request is one to the parked processes.
        self._stopping, self._signalled, self._save_by = False, None, self._kill_at
        self._kill_at = float("inf")
        try:
            if self._unsaved is None or self._have_saved():
                self._freeze()
            else:
                self._committed = checkpoint.durable_latest(order.checkpoint_dir)
                self._note_parked()
        except UnusableFileError as error:
            self._is_parked = False
            return Ended(order.lease, "failed", None, str(error))
        failpoints.point("keeper.park.noted")
        steps = None if self._committed is None else float(self._committed.steps)
        return Ended(order.lease, "left", steps, parked=True, unsaved=self._unsaved)

    def _freeze(self) -> None:
        """Freeze the parked processes, which have committed their steps, and hold no lock now.

        Raises UnusableFileError if the job has damaged its checkpoint.
        """
        self._confinement.freeze(True)
        self._output.copy(0.0)
        failpoints.point("keeper.park.frozen")
        self._committed = checkpoint.durable_latest(self._order.checkpoint_dir)
        self._unsaved = None
        self._used_gib = self._measure_memory()
        self._note_parked()

    def _have_saved(self) -> bool:
        """Return whether all parked processes have declared that their steps are committed."""
        return all(one.is_saved for one in self._dialogues)

    def _note_parked(self) -> None:
        """Tell the supervisor the memory of parked processes, and the steps they are saving."""
        resizes = all(one.resizes for one in self._dialogues)
        content = {
            "gib": self._used_gib,
            "unsaved": self._unsaved,
            "resizes": resizes,
            "had_lease": self._had_lease or self._directory != self._home,
        }
        lease_dir.write_json(self._home / lease_dir.PARKED, content, durable=False)

    def _wait_for_lease(self) -> Path | None:
        """Return the directory of the next lease; None if the parked processes must end."""
        if not self._wait_for_save():
            return None
        until = time.monotonic() + _MAX_PARKED_S
        while True:
            directory = take_next(self._home)
            if directory is not None:
                return directory
            alive = self._all_live() and self._server_lives()
            if self._stopping or not alive or time.monotonic() > until:
                return None
            self._pause_parked()

    def _wait_for_save(self) -> bool:
        """Wait until the parked processes have committed their steps; return whether they have.

        They are let finish if they must end or their server is dead.
        """
        while self._unsaved is not None and not self._have_saved():
            if not self._all_live() or time.monotonic() > self._save_by:
                return False
            self._pause_parked()
        if self._unsaved is not None:
            try:
                self._freeze()
            except UnusableFileError:
                return False
            failpoints.point("keeper.park.saved")
        return True

    def _pause_parked(self) -> None:
        """Wait for a while, or for a signal."""
        self._output.copy(_TICK_S)
        reap_adopted({member.pid for member in self._members})

    # -- the next lease -------------------------------------------------------------------------

    def _run_next(self, directory: Path) -> None:
        """Run a lease to its end, unless a server has declared it lost."""
        try:
            lock = lease_dir.try_lock(directory)
        except FileNotFoundError:
            return
        if lock is None:
            return
        with lock:
            order = lease_dir.read_order(directory)
            if lease_dir.read_ended(directory, order.lease) is not None:
                return
            failpoints.point("keeper.resume.locked")
            self._directory, self._order = directory, order
            with suppress(OSError):  # disk full: only the reason of a later start would be wrong
                lease_dir.write_json(self._home / lease_dir.PARKED, {}, durable=False)
            ended = self._resume()
            ended = replace(ended, resumed=self._had_lease, handed_over=not self._had_lease)
            self._had_lease = True
            failpoints.point("keeper.resume.ends")
            self.report(ended)
            failpoints.point("keeper.resume.ended")

    def _resume(self) -> Ended:
        """Continue the parked processes under the present order; return the lease's end."""
        order, self._is_parked = self._order, False
        self._asked_at = None
        for dialogue in self._dialogues:
            dialogue.is_parked = dialogue.is_saved = False
        try:
            self._confinement.open_directory_of(order)
            checkpoint.raise_fence(order.checkpoint_dir, order.lease)
            if not self._had_lease:  # the process reads the checkpoint only now
                self._committed = checkpoint.durable_latest(order.checkpoint_dir)
            unchanged = checkpoint.latest(order.checkpoint_dir) == self._committed
        except checkpoint.FencedError as error:
            steps = self._checkpointed_steps()
            return Ended(order.lease, "refused", steps, str(error), fence=error.fence)
        except (UnusableFileError, checkpoint.LockHeldError) as error:
            return Ended(order.lease, "failed", None, str(error))
        if self._stopping:
            steps = self._checkpointed_steps()
            return Ended(order.lease, "left", steps, "stopped before it started")
        if not unchanged:  # the process has another state in memory
            return Ended(order.lease, "lost", None, "the checkpoint of its parked process changed")
        leaving = self._drop_members()
        self._list_members()
        failpoints.point("keeper.resume.known")
        self._started_at = time.monotonic()
        self._output.redirect(self._open_log)
        self._send_lease()
        self._confinement.freeze(False)
        if problem := self._return_to_device() or self._complete_gang(leaving):
            return Ended(order.lease, "lost", self._checkpointed_steps(), problem)
        failpoints.point("keeper.resume.told")
        return self._watch()

    def _send_lease(self) -> None:
        """Send every member the variables of the present order."""
        order = self._order
        self._ports.close()
        self._ports = HeldPorts()
        self._meeting = self._ports.rendezvous(order)
        shared = {**order.environment, **self._meeting}
        for index, dialogue in enumerate(self._dialogues):
            of_member = {**shared, **member_environment(order, index)}
            own = {
                name: value
                for name, value in of_member.items()
                if name.startswith("FAIRLEAD_") or name in RENDEZVOUS
            }
            dialogue.channel.send("resume", own)

    def _drop_members(self) -> list[subprocess.Popen[bytes]]:
        """Kill the members that the present order has no device for; return them."""
        count = len(self._order.devices)
        leaving, self._members = self._members[count:], self._members[:count]
        self._close_channels(self._dialogues[count:])
        del self._dialogues[count:]
        self._output.drop(count)
        for member in leaving:
            kill_tree(member.pid)
        return leaving

    def _complete_gang(self, leaving: Sequence[subprocess.Popen[bytes]]) -> str:
        """Wait until leaving members have ended, and start new ones; return the problem, if any.

        New members continue from the checkpoint, which holds the state of those that have stayed.
        """
        while any(member.poll() is None for member in leaving):
            self._output.copy(EXIT_POLL_S)
        new = range(len(self._members), len(self._order.devices))
        if not (leaving or new):
            return ""
        try:
            self._confinement.continue_with(self._order, new)
            self._start_members(new)
        except (OSError, ValueError) as error:
            return f"its gang cannot grow: {error}"
        self._list_members()
        failpoints.point("keeper.resize.done")
        return ""

    def _return_to_device(self) -> str:
        """Give the process its device memory back; return the problem, if any.

        A process that uses the library does so itself.
        """
        return ""

    def _wake_up_at_signals(self) -> None:
        """End the wait for output at a signal, or when a process ends."""
        reading, writing = os.pipe()
        for end in (reading, writing):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (WAKE_SIGNAL, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        self._output.watch(reading, lambda: os.read(reading, 1 << 10))
