"""The keeper of one lease: starts the gang's processes, passes on signals, reports their end.

It runs in a session of its own and outlives the server that started it:
``python -m fairlead.engines.keeper.keeper LEASE_DIR``.
"""

import ctypes
import errno
import math
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from fairlead import failpoints
from fairlead.engines.base import Ended, LeaseOutcome, Order
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.environment import environment_of, rendezvous
from fairlead.engines.keeper.host_memory import memory_above_limit_gib
from fairlead.engines.keeper.log_file import LogFile
from fairlead.engines.keeper.orphans import end, orphans_of
from fairlead.job import checkpoint
from fairlead.job.exit_status import FAILED_TO_SAVE, LEFT, REFUSED

_SIGNAL_ON_PARENT_DEATH = 1  # PR_SET_PDEATHSIG
_TICK_S = 0.25
_MEMORY_CHECK_S = 1.0
_PATTERN_TIMEOUT_S = 1.0
"""how long the lines of one piece of output are searched for steps at most"""
_DESCENDANT_POLL_S = 0.1
"""between looks at what members have left behind"""
_HANDLER_TIMEOUT_S = 10.0
"""within which a member of a gang has begun to listen to the signal to stop, if it will"""
EXIT_POLL_S = 0.02
"""between looks at members that print no more: most are about to end, and others wait for it"""
_RESOURCE_ERRNOS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ENOMEM,
    errno.EAGAIN,
    errno.EMFILE,
    errno.ENFILE,
)
"""the machine's failures, which do not count against a job's retries"""


class NotStartedError(Exception):
    """A gang cannot be started; ``ending`` says how its lease ends."""

    def __init__(self, ending: LeaseOutcome, why: str) -> None:
        super().__init__(f"it did not start: {why}")
        self.ending = ending


class Keeper:
    """Runs the processes of one order to their end."""

    def __init__(self, directory: Path, order: Order) -> None:
        self._directory = directory
        self._order = order
        self._members: list[subprocess.Popen[bytes]] = []
        self._logs: dict[int, tuple[LogFile, bytes]] = {}
        self._selector = selectors.DefaultSelector()
        self._pattern = re.compile(order.progress_pattern or r"(?!)")
        self._steps: float | None = None
        self._stopping = False
        self._told: set[int] | None = None
        """members that were told to stop; None: none are to be"""
        self._started_at = 0.0
        self._kill_at = float("inf")
        self._memory_check_at = 0.0
        """when to look next at the memory that members hold"""
        self._why = ""

    def run(self) -> Ended:
        """Start the gang and return how it ended."""
        order = self._order
        try:
            checkpoint.raise_fence(order.checkpoint_dir, order.lease)
        except checkpoint.FencedError as error:
            return Ended(order.lease, "refused", self._saved(), str(error))
        failpoints.point("keeper.fence.raised")
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, _give_up)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        try:
            if not self.gather():
                return Ended(order.lease, "left", self._saved(), "it was stopped before it began")
            self._begin()
        except NotStartedError as error:
            return Ended(order.lease, error.ending, self._saved(), str(error))
        began = time.monotonic()
        limit_s = order.time_limit_s or float("inf")
        while any(member.poll() is None for member in self._members):
            self._copy_output(_TICK_S)
            self.tick()
            self._forward_stop()
            now = time.monotonic()
            if now >= self._kill_at:
                self._kill()
            elif not self._stopping:
                self._watch(now - began > limit_s)
        stopped = self._stopping  # what comes later finds nobody to stop
        self._copy_output(0.0)
        if stopped:
            self._wait_for_descendants()
        self._kill_descendants()
        self.finish()
        return self._ended(stopped=stopped)

    def gather(self) -> bool:
        """Wait for the rest of the gang, where there is one elsewhere; False: do not start.

        Raises NotStartedError if something is in the way.
        """
        return not self._stopping

    def tick(self) -> None:
        """Do what is to be done several times a second while members run."""

    def finish(self) -> None:
        """Do what is left to do once all members have ended."""

    def tell(self, ended: Ended) -> None:
        """Write down how the gang ended."""
        lease_dir.write_ended(self._directory, ended)

    def _begin(self) -> None:
        try:
            self._start()
        except (OSError, ValueError) as error:  # ValueError: what no process can be given
            self._kill()
            self._wait_for_members()  # a device is free when nobody is on it
            self._kill_descendants()
            no_room = isinstance(error, OSError) and error.errno in _RESOURCE_ERRNOS
            raise NotStartedError("lost" if no_room else "failed", str(error)) from error

    def _start(self) -> None:
        order = self._order
        self._started_at = time.monotonic()
        # The server's own settings, its database's password among them, are not the job's.
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
                env={**shared, **environment_of(order, index), **self._status_path(index)},
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
        known = {
            "keeper": os.getpid(),
            "members": pids,
            "started": [lease_dir.started(pid) for pid in pids],
        }
        lease_dir.write_json(self._directory / "members.json", known)
        failpoints.point("keeper.members.known")

    def _status_path(self, index: int) -> Mapping[str, str]:
        """Return where a member says how it left, which a shell around it may hide."""
        return {"FAIRLEAD_STATUS_FILE": str(self._directory / f"status.{index}")}

    def _exit_codes(self) -> list[int | None]:
        """Return members → its exit code, or what it has said instead; None while it runs."""
        codes = [member.poll() for member in self._members]
        for index, code in enumerate(codes):
            with suppress(OSError, ValueError):
                if code is not None:
                    codes[index] = int((self._directory / f"status.{index}").read_text("ascii"))
        return codes

    def _on_stop(self, *_: object) -> None:
        self._stop("")

    def _stop(self, why: str) -> None:
        if not self._stopping:
            self._stopping = True
            self._why = why
            self._kill_at = time.monotonic() + self._order.grace_s
            self._told = set()
            self._forward_stop()

    def _forward_stop(self) -> None:
        """Send the signal to stop to members that listen to it, and after a while to all.

        A gang leaves together: if one dies of the signal while it loads, those that run wait for
        its word until they are killed.
        """
        if self._told is None:
            return
        alone = (self._order.world_size or len(self._order.devices)) == 1
        all_at_once = (
            alone or self._why or time.monotonic() > self._started_at + _HANDLER_TIMEOUT_S
        )
        for member in self._members:
            if member.pid not in self._told and (all_at_once or _has_sigterm_handler(member.pid)):
                self._told.add(member.pid)
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
        """Let what members have started leave, too, if they were told to: a shell ends first."""
        told: set[int] = set()
        while time.monotonic() < self._kill_at and (left := orphans_of(self._order)):
            # Their own children they tell themselves: a trainer's helpers must not die before it.
            first = {pid for pid, parent in left.items() if parent not in left} - told
            for pid in first:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            told |= first
            time.sleep(_DESCENDANT_POLL_S)
            self._copy_output(0.0)
            self.tick()

    def _watch(self, late: bool) -> None:
        """Stop everyone when one member has left or failed, time is over, or memory is."""
        codes = self._exit_codes()
        bad = [code for code in codes if code not in (None, 0, LEFT, FAILED_TO_SAVE)]
        if bad and None in codes:
            self._stop(f"a member of the gang exited with {bad[0]}")
        elif None in codes and (LEFT in codes or FAILED_TO_SAVE in codes):
            # The rest follow at once, unless one that could not reach the server has left alone:
            # then they would wait for it in a collective operation for ever.
            self._stopping = True
            self._kill_at = time.monotonic() + self._order.grace_s
        elif late:
            self._stop(f"time limit of {self._order.time_limit_s:g} s")
        elif self._order.memory_gib is not None and time.monotonic() >= self._memory_check_at:
            self._memory_check_at = time.monotonic() + _MEMORY_CHECK_S
            held = memory_above_limit_gib(
                self._order.memory_gib, {member.pid for member in self._members}
            )
            if held is not None:
                self._stop(f"memory limit: {held:.2f} of {self._order.memory_gib:g} GiB")

    def _copy_output(self, wait_s: float) -> None:
        """Pass what members print to their logs."""
        if not self._selector.get_map():
            time.sleep(min(wait_s, EXIT_POLL_S))
            return
        for key, _ in self._selector.select(wait_s):
            source = key.fd
            log, rest = self._logs[source]
            while True:
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
        if self._order.progress_pattern is None:
            return b""
        *lines, rest = re.split(rb"[\r\n]", text)  # bars on terminals begin their line anew
        before = self._steps
        try:
            self._parse_progress(lines)
        except TimeoutError:
            self._pattern = re.compile("(?!)")
            sys.stderr.write("the progress pattern takes too long: it is given up\n")
        if self._steps != before:
            with suppress(OSError):  # it is told with the next steps, or at the end
                lease_dir.write_json(self._directory / "progress.json", {"steps": self._steps})
        return rest[-4096:]

    def _parse_progress(self, lines: list[bytes]) -> None:
        """Take the last number of steps that lines tell of; TimeoutError if that takes long."""
        signal.setitimer(signal.ITIMER_REAL, _PATTERN_TIMEOUT_S)
        try:
            for line in lines:
                found = self._pattern.search(line.decode(errors="replace"))
                steps = _steps(found.group(1)) if found else None
                self._steps = self._steps if steps is None else steps
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _kill_descendants(self) -> None:
        """End what members have left behind, in their process groups or elsewhere."""
        left = orphans_of(self._order)
        for member in self._members:
            _kill_group(member.pid)
        end(left)
        for log, _ in self._logs.values():
            log.close()

    def _saved(self) -> float | None:
        found = checkpoint.settled(self._order.checkpoint_dir)
        return self._steps if found is None else float(found.steps)

    def _ended(self, *, stopped: bool) -> Ended:
        codes = tuple(code for code in self._exit_codes() if code is not None)
        steps = self._saved()
        ending = self._ending(codes, steps, stopped=stopped)
        return Ended(self._order.lease, ending, steps, self._why if stopped else "", codes)

    def _ending(
        self, codes: tuple[int, ...], steps: float | None, *, stopped: bool
    ) -> LeaseOutcome:
        total = self._order.total_steps
        if REFUSED in codes:
            return "refused"
        if all(code == 0 for code in codes):
            # Told to stop, a job may be done all the same: its steps tell.
            done = total is not None and steps is not None and steps >= total
            if done or not stopped:
                return "finished"
            return "failed" if self._why else "left"
        if all(code in (0, LEFT, FAILED_TO_SAVE) for code in codes):
            return "left"
        if stopped and not self._why:
            told = (0, LEFT, FAILED_TO_SAVE, -signal.SIGTERM, -signal.SIGKILL, 143, 137)
            if all(code in told for code in codes):
                return "left"
        return "failed"


def _give_up(*_: object) -> None:
    raise TimeoutError


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_SIGNAL_ON_PARENT_DEATH, signal.SIGKILL)


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _has_sigterm_handler(pid: int) -> bool:
    """Tell whether a process has a handler for SIGTERM; if nobody knows, as if it had."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return True
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "")
    return not caught or bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def _steps(text: str | None) -> float | None:
    """Return the steps that a line tells of, None for what is no number of steps."""
    try:
        steps = float(text or "")
    except ValueError:
        return None
    return steps if 0 <= steps < math.inf else None


def keep(directory: Path, kind: Callable[[Path, Order], Keeper] = Keeper) -> int:
    """Run the lease of a directory to its end, unless another keeper does or did."""
    held = lease_dir.hold(directory)
    if held is None:
        return 0
    with held:
        if lease_dir.read_ended(directory) is None:  # a lease is never run twice
            failpoints.point("keeper.begins")
            keeper = kind(directory, lease_dir.read_order(directory))
            ended = keeper.run()
            failpoints.point("keeper.exit.before")
            keeper.tell(ended)
            failpoints.point("keeper.exit.after")
    return 0


def main() -> int:
    """Keep the lease whose directory is given."""
    return keep(Path(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(main())
