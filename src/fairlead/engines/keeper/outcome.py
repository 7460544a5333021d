"""Outcome of a lease, from the exit statuses of its members."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from fairlead.engines.keeper import lease_dir
from fairlead.job.exit_status import EXIT_FENCED, EXIT_PREEMPTED, EXIT_SAVE_FAILED
from fairlead.model.lease_outcome import LeaseOutcome

_LEAVE_CODES = (0, EXIT_PREEMPTED, EXIT_SAVE_FAILED)
_STOP_CODES = (*_LEAVE_CODES, -signal.SIGTERM, -signal.SIGKILL, 143, 137)


def exit_codes(home: Path, members: Sequence[subprocess.Popen[bytes]]) -> list[int | None]:
    """Return members → exit code, from the status file if there is one; None while running."""
    codes = [member.poll() for member in members]
    for index, code in enumerate(codes):
        if code is not None:
            codes[index] = lease_dir.read_status(home, index, code)
    return codes


def steps_at_own_exit(home: Path, members: Sequence[subprocess.Popen[bytes]]) -> float | None:
    """Return the steps after which all members have exited by themselves, None if one may not.

    A step that its program has left by ``break`` does not count.
    """
    exits = [lease_dir.read_own_exit(home, i, member.pid) for i, member in enumerate(members)]
    known = [steps for steps in exits if steps is not None]
    return min(known) if known and len(known) == len(exits) else None


def outcome_of(
    codes: tuple[int, ...], *, is_done: bool, stopped: bool, stop_reason: str
) -> LeaseOutcome:
    """Return the outcome of a gang that exited with these statuses.

    ``is_done`` tells whether the job has made all of its steps, or its members have exited by
    themselves; ``stop_reason`` is the reason of a stop that the server did not request.
    """
    if EXIT_FENCED in codes:
        return "refused"
    if all(code == 0 for code in codes):
        # A job that was asked to stop may have finished nevertheless.
        if is_done or not stopped:
            return "finished"
        return "failed" if stop_reason else "left"
    if all(code in _LEAVE_CODES for code in codes):
        return "left"
    if stopped and not stop_reason and all(code in _STOP_CODES for code in codes):
        return "left"
    return "failed"
