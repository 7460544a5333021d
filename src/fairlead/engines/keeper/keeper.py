"""The keeper of one lease: starts the gang's processes, forwards signals, reports their end.

It runs in its own session and outlives the server that started it:
``python -m fairlead.engines.keeper.keeper LEASE_DIR``.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fairlead import failpoints
from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.confinement.host_memory import memory_above_limit_gib
from fairlead.engines.keeper.confinement.members import Confinement
from fairlead.engines.keeper.container import Container
from fairlead.engines.keeper.environment import HeldPorts, member_environment
from fairlead.engines.keeper.launch_failure import LaunchFailedError
from fairlead.engines.keeper.orphans import kill_and_wait, kill_group, processes_of, reap_adopted
from fairlead.engines.keeper.outcome import exit_codes, outcome_of, steps_at_own_exit
from fairlead.engines.keeper.output import EXIT_POLL_S, MemberOutput
from fairlead.engines.keeper.printed_progress import raise_timeout
from fairlead.engines.keeper.secrets import RedactedLog, fetch_secrets
from fairlead.engines.keeper.start import KILL_SIGNAL
from fairlead.engines.keeper.stop_handler import has_stop_handler
from fairlead.job import checkpoint
from fairlead.job.exit_status import EXIT_PREEMPTED, EXIT_SAVE_FAILED
from fairlead.model.errors import InputError
from fairlead.untrusted_file import UnusableFileError

_TICK_S = 0.25
_LIMITS_CHECK_S = 1.0
_KILL_TIMEOUT_S = 10.0
_DESCENDANT_POLL_S = 0.1
"""seconds between two polls of the members' descendants"""
_HANDLER_TIMEOUT_S = 10.0
"""seconds in which a member of a gang installs its handler for the stop signal, if it has one"""


class Keeper:
    """Runs the processes of one order to their end."""

    in_cgroup = True
    """members get a control group of their own, where the machine permits it"""

    def __init__(self, directory: Path, order: LaunchOrder) -> None:
        self._directory = self._home = directory
        self._order, self._ports = order, HeldPorts()
        self._meeting: Mapping[str, str] = {}
        """environment variables with the address where the gang's members meet"""
        self._members: list[subprocess.Popen[bytes]] = []
        self._confinement = Confinement(directory, order)
        self._output = MemberOutput(order.progress_pattern, self._note_progress)
        self._secrets: Mapping[str, str] = {}
        """environment variable → value of a secret, once fetched"""
        self._container: Container | None = None
        self._stopping = False
        self._signalled: set[int] | None = None
        """members that were sent the stop signal; None while none should be"""
        self._started_at = 0.0
        self._kill_at = float("inf")
        self._limits_check_at = 0.0
        """time of the next check of the members' memory and number"""
        self._stop_reason = ""
        """reason of a stop that the server did not request"""
        self._damage = ""  # problem with the job's checkpoint directory

    def run(self) -> Ended:
        """Start the gang and return its end."""
        try:
            return self._run()
        finally:
            self._confinement.kill_and_remove()

    def _run(self) -> Ended:
        order = self._order
        try:
            self._confinement.prepare(in_cgroup=self.in_cgroup)
            checkpoint.raise_fence(order.checkpoint_dir, order.lease)
        except checkpoint.FencedError as error:
            steps = self._checkpointed_steps()
            return Ended(order.lease, "refused", steps, str(error), fence=error.fence)
        except (UnusableFileError, checkpoint.LockHeldError, InputError) as error:
            return Ended(order.lease, "failed", None, str(error))
        failpoints.point("keeper.fence.raised")
        self._handle_signals()
        try:
            if not (self.wait_for_gang() and self._fetch_secrets()):
                steps = self._checkpointed_steps()
                return Ended(order.lease, "left", steps, "stopped before it started")
            self._begin()
        except LaunchFailedError as error:
            return Ended(order.lease, error.ending, self._checkpointed_steps(), str(error))
        return self._watch()

    def _handle_signals(self) -> None:
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(KILL_SIGNAL, self._on_kill)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, raise_timeout)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])

    def _watch(self) -> Ended:
        """Follow the members until they have left their devices; return the lease's end."""
        began_at = time.monotonic()
        limit_s = self._order.time_limit_s or float("inf")
        while self.on_devices():
            self._output.copy(_TICK_S)
            reap_adopted({member.pid for member in self._members})
            self.tick()
            self._forward_stop()
            now = time.monotonic()
            if now >= self._kill_at:
                self._kill()
            elif not self._stopping:
                self._check_members(is_late=now - began_at > limit_s)
        return self._conclude()

    def _conclude(self) -> Ended:
        """End all processes of the members and return the lease's end."""
        self._note_limit()
        stopped = self._stopping  # a later stop request has no member to stop
        self._output.copy(0.0)
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

    def on_devices(self) -> bool:
        """Return whether a member uses its device."""
        return any(member.poll() is None for member in self._members)

    def member_channel(self) -> tuple[Mapping[str, str], Sequence[int]]:
        """Return variables and descriptors of a member's connection to this keeper; none here."""
        return {}, ()

    def stay(self) -> None:
        """Run further leases of processes that have stayed; none do here."""

    def tick(self) -> None:
        """Do the engine's periodic work, several times a second while members run."""

    def finish(self) -> None:
        """Do the engine's last work once all members have ended."""

    def report(self, ended: Ended) -> None:
        """Persist the end of the gang."""
        lease_dir.write_ended(self._directory, replace(ended, at=time.time()))

    def _fetch_secrets(self) -> bool:
        """Fetch the job's secrets; return False if the gang must not start."""

        def may_start() -> bool:
            self.tick()
            return not self._stopping

        self._secrets = fetch_secrets(self._order, may_start)
        return not self._stopping

    def _begin(self) -> None:
        try:
            self._start()
        except (OSError, ValueError) as error:  # ValueError: an unusable argument
            self._kill()
            self._wait_for_members()  # only then are the devices free
            self._kill_descendants()
            raise LaunchFailedError.of(error) from error

    def _start(self) -> None:
        order = self._order
        self._started_at = time.monotonic()
        self._meeting = self._ports.rendezvous(order)
        if order.container:
            self._container = Container.of(order, self._directory)
        Path(order.log_dir).mkdir(parents=True, exist_ok=True)
        self._start_members(range(len(order.devices)))
        self._list_members()
        failpoints.point("keeper.members.known")

    def _start_members(self, indices: range) -> None:
        for index in indices:
            self._members.append(self._start_member(self._order, index, self._meeting))
            failpoints.point("keeper.member.started")

    def _start_member(
        self, order: LaunchOrder, index: int, meeting: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        # A job must not see the server's settings: its database's password is among them.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("FAIRLEAD_")}
        of_job = {**order.environment, **self._secrets, **meeting}
        output = self._output.open_pipe(self._open_log(index))
        channel, passed = self.member_channel()
        own = {**member_environment(order, index), **self._status_path(index), **channel}
        environment = {**inherited, **self._confinement.environment, **of_job, **own}
        try:
            command: Sequence[str] = order.command
            if self._container is not None:
                command = self._container.command(index, environment, {**of_job, **own})
            return self._confinement.start(command, environment, output, passed)
        finally:
            os.close(output)

    def _open_log(self, index: int) -> RedactedLog:
        name = f"{self._order.lease}.{self._order.first_rank + index}.log"
        return RedactedLog(Path(self._order.log_dir) / name, self._secrets.values())

    def _list_members(self) -> None:
        """Write the members to the lease's directory, where a later server finds them."""
        pids = [member.pid for member in self._members]
        lease_dir.write_members(self._directory, os.getpid(), pids)

    def _status_path(self, index: int) -> Mapping[str, str]:
        """Return the path of a member's status file: a shell around it may hide its status."""
        return {"FAIRLEAD_STATUS_FILE": str(self._home / f"status.{index}")}

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
            if member.pid not in self._signalled and (to_all or has_stop_handler(member.pid)):
                self._signalled.add(member.pid)
                if member.poll() is None:
                    member.send_signal(signal.SIGTERM)

    def _kill(self) -> None:
        self._confinement.kill()
        for member in self._members:
            if member.poll() is None:
                kill_group(member.pid)

    def _wait_for_members(self) -> None:
        while any(member.poll() is None for member in self._members):
            self._output.copy(EXIT_POLL_S)

    def _wait_for_descendants(self) -> None:
        """Wait until the members' descendants leave: a shell ends before its command."""
        signalled: set[int] = set()
        while time.monotonic() < self._kill_at and (left := processes_of(self._order)):
            # Each process stops its children itself: a trainer's workers must not die before it.
            topmost = {pid for pid, parent in left.items() if parent not in left} - signalled
            for pid in topmost:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            signalled |= topmost
            time.sleep(_DESCENDANT_POLL_S)
            self._output.copy(0.0)
            self.tick()

    def _check_members(self, *, is_late: bool) -> None:
        """Stop the gang when a member has left or failed, or a limit is exceeded."""
        codes = exit_codes(self._home, self._members)
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
        elif time.monotonic() >= self._limits_check_at:
            self._limits_check_at = time.monotonic() + _LIMITS_CHECK_S
            self._check_limits()

    def _check_limits(self) -> None:
        """Stop a gang above its limits; kill it if the kernel has enforced one."""
        order, confinement = self._order, self._confinement
        exceeded = confinement.limit_exceeded()
        if exceeded is not None:
            self._stop(exceeded)
            self._kill_at = 0.0
            return
        if order.memory_gib is not None and not confinement.enforces("memory"):
            sessions = {member.pid for member in self._members}
            used_gib = memory_above_limit_gib(order.memory_gib, sessions)
            if used_gib is not None:
                self._stop(f"memory limit: {used_gib:.2f} of {order.memory_gib:g} GiB")
        limit = None if confinement.enforces("pids") else order.max_processes
        if limit is not None and len(processes_of(order)) > limit:
            self._stop(f"process limit: {limit} processes")
            self._kill_at = 0.0

    def _note_limit(self) -> None:
        """Record the limit at which the kernel has ended the members, if it has."""
        exceeded = self._confinement.limit_exceeded()
        if exceeded is not None and not self._stopping:
            self._stopping = True
            self._stop_reason = exceeded

    def _note_progress(self, steps: float) -> None:
        """Persist the steps that members print."""
        with suppress(OSError):  # the next steps, or the end of the lease, report it
            lease_dir.write_json(self._directory / "progress.json", {"steps": steps})

    def _kill_descendants(self) -> None:
        """Kill the members' descendants, in their process groups or elsewhere."""
        if self._container is not None:
            for index in range(len(self._members)):
                self._confinement.run(self._container.removal(index))
        self._confinement.kill_and_remove()
        for member in self._members:
            kill_group(member.pid)
        until = time.monotonic() + _KILL_TIMEOUT_S
        while (left := processes_of(self._order)) and time.monotonic() < until:
            kill_and_wait(left)
        self._output.close()

    def _checkpointed_steps(self) -> float | None:
        try:
            committed = checkpoint.durable_latest(self._order.checkpoint_dir)
        except UnusableFileError as error:
            self._damage = str(error)
            return None
        return self._output.steps if committed is None else float(committed.steps)

    def _ended(self, *, stopped: bool) -> Ended:
        home, members = self._home, self._members
        codes = tuple(code for code in exit_codes(home, members) if code is not None)
        steps, total = self._checkpointed_steps(), self._order.total_steps
        own_exit = steps_at_own_exit(home, members)
        is_done = total is not None and steps is not None and steps >= total
        is_done |= own_exit is not None
        ending = outcome_of(codes, is_done=is_done, stopped=stopped, stop_reason=self._stop_reason)
        if self._damage and ending != "refused":
            return Ended(self._order.lease, "failed", None, self._damage, codes)
        if ending == "finished" and own_exit is not None:
            steps = max(steps or 0.0, own_exit)
        return Ended(self._order.lease, ending, steps, self._stop_reason if stopped else "", codes)


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
            keeper.stay()
    return 0


def main() -> int:
    """Run the lease whose directory is the argument."""
    return run_lease(Path(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(main())
