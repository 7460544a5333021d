"""The keeper of one lease: starts the gang's processes, forwards signals, reports their end.

It runs in its own session and outlives the server that started it:
``python -m fairlead.engines.keeper.keeper LEASE_DIR``.
"""

import ctypes
import errno
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from fairlead import failpoints
from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.environment import member_environment, rendezvous
from fairlead.engines.keeper.host_memory import memory_above_limit_gib
from fairlead.engines.keeper.log_file import LogFile
from fairlead.engines.keeper.orphans import kill_and_wait, orphans_of
from fairlead.engines.keeper.printed_progress import PrintedProgress, raise_timeout
from fairlead.engines.keeper.start import KILL_SIGNAL
from fairlead.job import checkpoint
from fairlead.job.exit_status import EXIT_FENCED, EXIT_PREEMPTED, EXIT_SAVE_FAILED
from fairlead.model.lease_outcome import LeaseOutcome
from fairlead.untrusted_file import UnusableFileError

_SIGNAL_ON_PARENT_DEATH = 1  # PR_SET_PDEATHSIG
_TICK_S = 0.25
_MAX_CHUNKS = 16  # of a member's output at a time: limits apply to endless output, too
_MEMORY_CHECK_S = 1.0
_DESCENDANT_POLL_S = 0.1
"""seconds between two polls of the members' descendants"""
_HANDLER_TIMEOUT_S = 10.0
"""seconds in which a member of a gang installs its handler for the stop signal, if it has one"""
EXIT_POLL_S = 0.02
"""seconds between two polls of members that closed their output: most are about to exit"""
_RESOURCE_ERRNOS = (
    errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE,
)  # fmt: skip
"""failures of the machine, which do not count against a job's retries"""


class LaunchFailedError(Exception):
    """A gang cannot be started; ``ending`` is the outcome of its lease."""

    def __init__(self, ending: LeaseOutcome, reason: str) -> None:
        super().__init__(f"did not start: {reason}")
        self.ending = ending


class Keeper:
    """Runs the processes of one order to their end."""

    def __init__(self, directory: Path, order: LaunchOrder) -> None:
        self._directory = directory
        self._order = order
        self._members: list[subprocess.Popen[bytes]] = []
        self._logs: dict[int, tuple[LogFile, bytes]] = {}
        self._selector = selectors.DefaultSelector()
        self._progress = PrintedProgress(order.progress_pattern)
        self._stopping = False
        self._signalled: set[int] | None = None
        """members that were sent the stop signal; None while none should be"""
        self._started_at = 0.0
        self._kill_at = float("inf")
        self._memory_check_at = 0.0
        """time of the next check of the members' memory"""
        self._stop_reason = ""
        """reason of a stop that the server did not request"""
        self._damage = ""  # problem with the job's checkpoint directory

    def run(self) -> Ended:
        """Start the gang and return its end."""
        order = self._order
        try:
            checkpoint.raise_fence(order.checkpoint_dir, order.lease)
        except checkpoint.FencedError as error:
            return Ended(order.lease, "refused", self._checkpointed_steps(), str(error))
        except (UnusableFileError, checkpoint.LockHeldError) as error:
            return Ended(order.lease, "failed", None, str(error))
        failpoints.point("keeper.fence.raised")
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(KILL_SIGNAL, self._on_kill)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, raise_timeout)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        try:
            if not self.wait_for_gang():
                steps = self._checkpointed_steps()
                return Ended(order.lease, "left", steps, "stopped before it started")
            self._begin()
        except LaunchFailedError as error:
            return Ended(order.lease, error.ending, self._checkpointed_steps(), str(error))
        began_at = time.monotonic()
        limit_s = order.time_limit_s or float("inf")
        while any(member.poll() is None for member in self._members):
            self._copy_output(_TICK_S)
            self.tick()
            self._forward_stop()
            now = time.monotonic()
            if now >= self._kill_at:
                self._kill()
            elif not self._stopping:
                self._check_members(is_late=now - began_at > limit_s)
        stopped = self._stopping  # a later stop request has no member to stop
        self._copy_output(0.0)
        if stopped:
            self._wait_for_descendants()
        self._kill_descendants()
        self.finish()
        return self._ended(stopped=stopped)

    def wait_for_gang(self) -> bool:
        """Wait for the gang's members on other nodes; return False if the gang must not start.

        Raises LaunchFailedError if it cannot start.
        """
        return not self._stopping

    def tick(self) -> None:
        """Do the engine's periodic work, several times a second while members run."""

    def finish(self) -> None:
        """Do the engine's last work once all members have ended."""

    def report(self, ended: Ended) -> None:
        """Persist the end of the gang."""
        lease_dir.write_ended(self._directory, ended)

    def _begin(self) -> None:
        try:
            self._start()
        except (OSError, ValueError) as error:  # ValueError: an unusable argument
            self._kill()
            self._wait_for_members()  # only then are the devices free
            self._kill_descendants()
            by_machine = isinstance(error, OSError) and error.errno in _RESOURCE_ERRNOS
            raise LaunchFailedError("lost" if by_machine else "failed", str(error)) from error

    def _start(self) -> None:
        order = self._order
        self._started_at = time.monotonic()
        # A job must not see the server's settings: its database's password is among them.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("FAIRLEAD_")}
        shared = {**inherited, **order.environment, **rendezvous(order)}
        Path(order.log_dir).mkdir(parents=True, exist_ok=True)
        for index in range(len(order.devices)):
            log = LogFile(Path(order.log_dir) / f"{order.lease}.{order.first_rank + index}.log")
            reading, writing = os.pipe()
            self._logs[reading] = (log, b"")
            member = subprocess.Popen(
                order.command,
                cwd=order.directory or None,
                env={**shared, **member_environment(order, index), **self._status_path(index)},
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  # a keeper has no threads
            )
            self._members.append(member)
            os.close(writing)
            os.set_blocking(reading, False)
            self._selector.register(reading, selectors.EVENT_READ)
            failpoints.point("keeper.member.started")
        pids = [member.pid for member in self._members]
        members = {
            "keeper": os.getpid(),
            "members": pids,
            "started": [lease_dir.process_start_ticks(pid) for pid in pids],
        }
        lease_dir.write_json(self._directory / "members.json", members)
        failpoints.point("keeper.members.known")

    def _status_path(self, index: int) -> Mapping[str, str]:
        """Return the path of a member's status file: a shell around it may hide its status."""
        return {"FAIRLEAD_STATUS_FILE": str(self._directory / f"status.{index}")}

    def _exit_codes(self) -> list[int | None]:
        """Return members → exit code, from the status file if there is one; None while running."""
        codes = [member.poll() for member in self._members]
        for index, code in enumerate(codes):
            if code is not None:
                codes[index] = lease_dir.read_status(self._directory, index, code)
        return codes

    def _on_stop(self, *_: object) -> None:
        self._stop("")

    def _on_kill(self, *_: object) -> None:
        self._stop("")
        self._kill_at = 0.0

    def _stop(self, reason: str) -> None:
        if not self._stopping:
            self._stopping = True
            self._stop_reason = reason
            self._kill_at = time.monotonic() + self._order.grace_s
            self._signalled = set()
            self._forward_stop()

    def _forward_stop(self) -> None:
        """Send the stop signal to members that have a handler for it, and after a while to all.

        A gang leaves together: if the signal kills a member that is still loading, the running
        ones wait for its step count until they are killed.
        """
        if self._signalled is None:
            return
        alone = (self._order.world_size or len(self._order.devices)) == 1
        to_all = (
            alone or self._stop_reason or time.monotonic() > self._started_at + _HANDLER_TIMEOUT_S
        )
        for member in self._members:
            if member.pid not in self._signalled and (to_all or _has_sigterm_handler(member.pid)):
                self._signalled.add(member.pid)
                if member.poll() is None:
                    member.send_signal(signal.SIGTERM)

    def _kill(self) -> None:
        for member in self._members:
            if member.poll() is None:
                _kill_group(member.pid)

    def _wait_for_members(self) -> None:
        while any(member.poll() is None for member in self._members):
            self._copy_output(EXIT_POLL_S)

    def _wait_for_descendants(self) -> None:
        """Wait until the members' descendants leave: a shell ends before its command."""
        signalled: set[int] = set()
        while time.monotonic() < self._kill_at and (left := orphans_of(self._order)):
            # Each process stops its children itself: a trainer's workers must not die before it.
            topmost = {pid for pid, parent in left.items() if parent not in left} - signalled
            for pid in topmost:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            signalled |= topmost
            time.sleep(_DESCENDANT_POLL_S)
            self._copy_output(0.0)
            self.tick()

    def _check_members(self, *, is_late: bool) -> None:
        """Stop the gang when a member has left or failed, or a limit is exceeded."""
        codes = self._exit_codes()
        bad = [code for code in codes if code not in (None, 0, EXIT_PREEMPTED, EXIT_SAVE_FAILED)]
        if bad and None in codes:
            self._stop(f"a member of the gang exited with {bad[0]}")
        elif None in codes and (EXIT_PREEMPTED in codes or EXIT_SAVE_FAILED in codes):
            # The others follow at once, unless this one left alone because it could not reach
            # the server: then they would wait for it in a collective operation for ever.
            self._stopping = True
            self._kill_at = time.monotonic() + self._order.grace_s
        elif is_late:
            self._stop(f"time limit of {self._order.time_limit_s:g} s")
        elif self._order.memory_gib is not None and time.monotonic() >= self._memory_check_at:
            self._memory_check_at = time.monotonic() + _MEMORY_CHECK_S
            used_gib = memory_above_limit_gib(
                self._order.memory_gib, {member.pid for member in self._members}
            )
            if used_gib is not None:
                self._stop(f"memory limit: {used_gib:.2f} of {self._order.memory_gib:g} GiB")

    def _copy_output(self, wait_s: float) -> None:
        """Copy the members' output to their logs."""
        if not self._selector.get_map():
            time.sleep(min(wait_s, EXIT_POLL_S))
            return
        for key, _ in self._selector.select(wait_s):
            source = key.fd
            log, rest = self._logs[source]
            for _ in range(_MAX_CHUNKS):
                try:
                    chunk = os.read(source, 1 << 16)
                except BlockingIOError:
                    break
                if not chunk:
                    self._note_progress(rest + b"\n")
                    self._selector.unregister(source)
                    os.close(source)
                    log.close()
                    break
                log.write(chunk)
                rest = self._note_progress(rest + chunk)
            self._logs[source] = (log, rest)

    def _note_progress(self, text: bytes) -> bytes:
        """Persist the steps that members print; return the incomplete last line."""
        before = self._progress.steps
        rest = self._progress.read(text)
        if self._progress.steps != before:
            progress = {"steps": self._progress.steps}
            with suppress(OSError):  # the next steps, or the end of the lease, report it
                lease_dir.write_json(self._directory / "progress.json", progress)
        return rest

    def _kill_descendants(self) -> None:
        """Kill the members' descendants, in their process groups or elsewhere."""
        left = orphans_of(self._order)
        for member in self._members:
            _kill_group(member.pid)
        kill_and_wait(left)
        for log, _ in self._logs.values():
            log.close()

    def _checkpointed_steps(self) -> float | None:
        try:
            committed = checkpoint.durable_latest(self._order.checkpoint_dir)
        except UnusableFileError as error:
            self._damage = str(error)
            return None
        return self._progress.steps if committed is None else float(committed.steps)

    def _ended(self, *, stopped: bool) -> Ended:
        codes = tuple(code for code in self._exit_codes() if code is not None)
        steps = self._checkpointed_steps()
        ending = self._ending(codes, steps, stopped=stopped)
        if self._damage and ending != "refused":
            return Ended(self._order.lease, "failed", None, self._damage, codes)
        return Ended(self._order.lease, ending, steps, self._stop_reason if stopped else "", codes)

    def _ending(
        self, codes: tuple[int, ...], steps: float | None, *, stopped: bool
    ) -> LeaseOutcome:
        total = self._order.total_steps
        if EXIT_FENCED in codes:
            return "refused"
        if all(code == 0 for code in codes):
            # A job that was asked to stop may have finished nevertheless: its steps tell.
            done = total is not None and steps is not None and steps >= total
            if done or not stopped:
                return "finished"
            return "failed" if self._stop_reason else "left"
        leave_codes = (0, EXIT_PREEMPTED, EXIT_SAVE_FAILED)
        if all(code in leave_codes for code in codes):
            return "left"
        if stopped and not self._stop_reason:
            stop_codes = (*leave_codes, -signal.SIGTERM, -signal.SIGKILL, 143, 137)
            if all(code in stop_codes for code in codes):
                return "left"
        return "failed"


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_SIGNAL_ON_PARENT_DEATH, signal.SIGKILL)


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _has_sigterm_handler(pid: int) -> bool:
    """Return whether a process has a handler for SIGTERM; True if that is unknown."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return True
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "")
    return not caught or bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def run_lease(directory: Path, make: Callable[[Path, LaunchOrder], Keeper] = Keeper) -> int:
    """Run the lease of a directory to its end, unless another keeper does or did."""
    lock = lease_dir.try_lock(directory)
    if lock is None:
        return 0
    with lock:
        order = lease_dir.read_order(directory)
        if lease_dir.read_ended(directory, order.lease) is None:  # a lease is never run twice
            failpoints.point("keeper.begins")
            keeper = make(directory, order)
            ended = keeper.run()
            failpoints.point("keeper.exit.before")
            keeper.report(ended)
            failpoints.point("keeper.exit.after")
    return 0


def main() -> int:
    """Run the lease whose directory is the argument."""
    return run_lease(Path(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(main())
