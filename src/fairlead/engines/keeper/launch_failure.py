"""The failure of a launch, which ends a lease before its members run."""

import errno

from fairlead.model.lease_outcome import LeaseOutcome

_RESOURCE_ERRNOS = (
    errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE,
)  # fmt: skip
"""failures of the machine, which do not count against a job's retries"""


class LaunchFailedError(Exception):
    """A gang cannot be started; ``ending`` is the outcome of its lease."""

    def __init__(self, ending: LeaseOutcome, reason: str) -> None:
        super().__init__(f"did not start: {reason}")
        self.ending = ending

    @classmethod
    def of(cls, error: OSError | ValueError) -> "LaunchFailedError":
        """Return the failure of a launch that an error has stopped."""
        by_machine = isinstance(error, OSError) and error.errno in _RESOURCE_ERRNOS
        return cls("lost" if by_machine else "failed", str(error))
