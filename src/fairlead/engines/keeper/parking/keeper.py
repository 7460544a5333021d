"""A keeper whose process may stay after its lease, and continue under the job's next one.

The process asks before it gives up its device. The keeper answers, and reports the end of the
lease once the process has left the device. It freezes the process once that has committed its
last steps, and kills it if that takes longer than the lease's grace. It lives as long as the
process does, in the directory of the first lease. See docs/design/offload.md.
"""

import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fairlead import failpoints
from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.confinement.host_memory import used_memory_gib
from fairlead.engines.keeper.environment import member_environment
from fairlead.engines.keeper.keeper import Keeper
from fairlead.engines.keeper.orphans import reap_adopted
from fairlead.engines.keeper.parking.parked import SERVER_VARIABLE, may_park, take_next
from fairlead.engines.keeper.start import WAKE_SIGNAL
from fairlead.job import checkpoint
from fairlead.job.keeper.channel import VARIABLE, Channel
from fairlead.job.saving.saver import LIMIT_VARIABLE
from fairlead.untrusted_file import UnusableFileError

_TICK_S = 0.25
_ANSWER_TIMEOUT_S = 10.0
"""seconds until a process that leaves must exit: its server lives, and requests no stop"""
_MAX_PARKED_S = 3600.0
_MAX_NUMBER = 2.0**53
"""maximum of a number that a process sends"""


class ParkingKeeper(Keeper):
    """Runs the process of one order, and of later orders of its job on the same device."""

    def __init__(self, directory: Path, order: LaunchOrder) -> None:
        super().__init__(directory, order)
        self._server = int(os.environ.get(SERVER_VARIABLE, "0"))
        self._channel: Channel | None = None
        self._member_end: socket.socket | None = None
        self._uses_library = False
        """the process has attached, or is about to"""
        self._can_park = False
        """the process has declared that it can"""
        self._asked_at: float | None = None
        """time at which it asked whether to park"""
        self._was_allowed = False
        """the last answer allowed it to park"""
        self._more_gib = 0.0
        """host memory that it will use besides, by its own account"""
        self._is_parked = False
        self._unsaved: float | None = None
        """steps that the parked process is saving; None once it has"""
        self._is_saved = False
        """the process has declared that all of its steps are committed"""
        self._save_by = float("inf")
        """time at which the parked process is killed unless it has saved its steps"""
        self._committed: checkpoint.CommittedCheckpoint | None = None
        """checkpoint of the parked process"""
        self._used_gib = 0.0
        self._is_ready = False
        """the process waits for its first lease"""
        self._had_lease = True
        """the process has run under a lease, and has its state in memory"""

    def run(self) -> Ended:
        """Start the process and return the end of its first lease."""
        self._wake_up_at_signals()
        try:
            return self._run()
        finally:
            if not self._is_parked:
                self._confinement.kill_and_remove()

    def stay(self) -> None:
        """Run the leases that the parked process gets, until it ends or must."""
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

    # -- the process's messages -----------------------------------------------------------------

    def member_channel(self) -> tuple[Mapping[str, str], Sequence[int]]:
        """Return the variable and the descriptor of the process's connection to this keeper."""
        if not (self._order.offload_gib > 0 and may_park(self._order)):
            return {}, ()
        own, of_member = socket.socketpair()
        own.setblocking(False)
        self._channel = Channel(own)
        self._output.watch(own.fileno(), self._hear)
        self._member_end = of_member
        limit_gib = min(self._order.offload_gib, self._order.memory_gib or float("inf"))
        variables = {VARIABLE: str(of_member.fileno()), LIMIT_VARIABLE: str(limit_gib)}
        return variables, (of_member.fileno(),)

    def _start(self) -> None:
        super()._start()
        if self._member_end is not None:
            self._member_end.close()

    def _hear(self) -> None:
        assert self._channel is not None
        for kind, fields in self._channel.receive():
            if kind == "attaching":
                self._uses_library = True
            elif kind == "can_park":
                self._uses_library = self._can_park = True
            elif kind == "leaving" and not self._is_parked:
                self._asked_at = time.monotonic()
                self._more_gib = _number(fields.get("more_gib")) or 0.0
            elif kind == "parked" and self._was_allowed:
                self._was_allowed, self._is_parked = False, True
                self._unsaved, self._is_saved = _number(fields.get("unsaved")), False
            elif kind == "saved" and self._is_parked:
                self._is_saved = True
            elif kind == "ready":
                self._is_ready = True
        if self._channel.closed:
            self._output.unwatch(self._channel.fileno())
            self._can_park = False
        self._answer()

    def tick(self) -> None:
        """Answer a process that waits for an answer."""
        self._answer()

    def _answer(self) -> None:
        """Tell a process that leaves whether to park.

        The process may learn of its preemption before this keeper does: the stop request follows,
        unless the server dies.
        """
        if self._asked_at is None or self._channel is None:
            return
        may_follow = time.monotonic() < self._asked_at + _ANSWER_TIMEOUT_S
        if not self._stopping and may_follow and self._server_lives():
            return
        self._asked_at = None
        sessions = {member.pid for member in self._members}
        limit_gib = self._order.offload_gib
        self._used_gib = used_memory_gib(sessions, exact_above_gib=limit_gib) + self._more_gib
        self._was_allowed = (
            self._stopping
            and not self._stop_reason
            and self._used_gib <= limit_gib
            and self._server_lives()
        )
        self._channel.send("park" if self._was_allowed else "exit")

    def _forward_stop(self) -> None:
        """Send the stop by the channel where the process listens: it may be behind a shell."""
        if not self._can_park or self._channel is None or self._stop_reason:
            super()._forward_stop()
        elif self._signalled is not None and not self._signalled and not self._is_parked:
            self._signalled = {member.pid for member in self._members}
            self._channel.send("stop")

    # -- parked ---------------------------------------------------------------------------------

    def on_devices(self) -> bool:
        """Return whether the process uses its device."""
        return not self._is_parked and super().on_devices()

    def _conclude(self) -> Ended:
        if not self._is_parked:
            return super()._conclude()
        order = self._order
        # From now on a stop request is one to the parked process.
        self._stopping, self._signalled, self._save_by = False, None, self._kill_at
        self._kill_at = float("inf")
        try:
            if self._unsaved is None or self._is_saved:
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
        """Freeze the parked process, which has committed its steps, and holds no lock now.

        Raises UnusableFileError if the job has damaged its checkpoint.
        """
        self._confinement.freeze(True)
        self._output.copy(0.0)
        failpoints.point("keeper.park.frozen")
        self._committed = checkpoint.durable_latest(self._order.checkpoint_dir)
        self._unsaved = None
        sessions = {member.pid for member in self._members}
        self._used_gib = used_memory_gib(sessions, exact_above_gib=self._order.offload_gib)
        self._note_parked()

    def _note_parked(self) -> None:
        """Tell the supervisor the parked process's memory, and the steps that it is saving."""
        content = {"gib": self._used_gib, "unsaved": self._unsaved}
        lease_dir.write_json(self._home / lease_dir.PARKED, content, durable=False)

    def _wait_for_lease(self) -> Path | None:
        """Return the directory of the next lease; None if the parked process must end."""
        if not self._wait_for_save():
            return None
        until = time.monotonic() + _MAX_PARKED_S
        while True:
            directory = take_next(self._home)
            if directory is not None:
                return directory
            alive = super().on_devices() and self._server_lives()
            if self._stopping or not alive or time.monotonic() > until:
                return None
            self._output.copy(_TICK_S)
            reap_adopted({member.pid for member in self._members})

    def _wait_for_save(self) -> bool:
        """Wait until the parked process has committed its steps; return whether it has.

        It is let finish if it must end or its server is dead.
        """
        while self._unsaved is not None and not self._is_saved:
            if not super().on_devices() or time.monotonic() > self._save_by:
                return False
            self._output.copy(_TICK_S)
            reap_adopted({member.pid for member in self._members})
        if self._unsaved is not None:
            try:
                self._freeze()
            except UnusableFileError:
                return False
            failpoints.point("keeper.park.saved")
        return True

    def _server_lives(self) -> bool:
        """Return whether the server lives that started this keeper: no other knows of parking."""
        return os.getppid() == self._server

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
            ended = self._resume()
            ended = replace(ended, resumed=self._had_lease, handed_over=not self._had_lease)
            self._had_lease = True
            failpoints.point("keeper.resume.ends")
            self.report(ended)
            failpoints.point("keeper.resume.ended")

    def _resume(self) -> Ended:
        """Continue the parked process under the present order; return the lease's end."""
        order, self._is_parked = self._order, False
        try:
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
        self._list_members()
        failpoints.point("keeper.resume.known")
        self._started_at = time.monotonic()
        self._output.redirect(self._open_log)
        assert self._channel is not None
        environment = {**order.environment, **member_environment(order, 0)}
        own = {k: v for k, v in environment.items() if k.startswith("FAIRLEAD_")}
        self._channel.send("resume", own)
        self._confinement.freeze(False)
        if problem := self._return_to_device():
            return Ended(order.lease, "lost", self._checkpointed_steps(), problem)
        failpoints.point("keeper.resume.told")
        return self._watch()

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


def _number(text: str | None) -> float | None:
    """Return a number that a process has sent, None if it is none or out of range."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number <= _MAX_NUMBER else None
