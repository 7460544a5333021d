"""Outcome of a lease, from the exit statuses of its members."""

import signal

from fairlead.job.exit_status import EXIT_FENCED, EXIT_PREEMPTED, EXIT_SAVE_FAILED
from fairlead.model.lease_outcome import LeaseOutcome

_LEAVE_CODES = (0, EXIT_PREEMPTED, EXIT_SAVE_FAILED)
_STOP_CODES = (*_LEAVE_CODES, -signal.SIGTERM, -signal.SIGKILL, 143, 137)


def outcome_of(
    codes: tuple[int, ...], *, is_done: bool, stopped: bool, stop_reason: str
) -> LeaseOutcome:
    """Return the outcome of a gang that exited with these statuses.

    ``is_done`` tells whether the job has made all of its steps, ``stop_reason`` the reason of a
    stop that the server did not request.
    """
    if EXIT_FENCED in codes:
        return "refused"
    if all(code == 0 for code in codes):
        # A job that was asked to stop may have finished nevertheless: its steps tell.
        if is_done or not stopped:
            return "finished"
        return "failed" if stop_reason else "left"
    if all(code in _LEAVE_CODES for code in codes):
        return "left"
    if stopped and not stop_reason and all(code in _STOP_CODES for code in codes):
        return "left"
    return "failed"
