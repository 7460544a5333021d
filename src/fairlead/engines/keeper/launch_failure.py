"""The failure of a launch, which ends a lease before its members run."""

from fairlead.model.lease_outcome import LeaseOutcome


class LaunchFailedError(Exception):
    """A gang cannot be started; ``ending`` is the outcome of its lease."""

    def __init__(self, ending: LeaseOutcome, reason: str) -> None:
        super().__init__(f"did not start: {reason}")
        self.ending = ending
