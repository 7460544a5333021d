"""Errors of the store."""

from fairlead.model.errors import FairleadError


class StoreError(FairleadError):
    """The database cannot be reached or read."""

    code = "store"


class StoreUnavailableError(StoreError):
    """The database stayed locked or unreachable for too long, or its disk is full.

    Nothing was lost: a new start continues once the database can be used.
    """

    code = "store-unavailable"


class DamagedLogError(StoreError):
    """The event log or the saved state in the database is damaged or incomplete."""

    code = "damaged-log"

    def __init__(self, problem: str, *, accepted: int | None = None) -> None:
        way_out = "restore a backup of the database"
        if accepted is not None:
            way_out += (
                f", or start once with --accept-log-until {accepted}, which moves all later events"
                " to the directory quarantine/"
            )
        super().__init__(f"{problem}: {way_out}")
        self.accepted = accepted
        """number of the last intact event, None if the state before it is damaged as well"""


class FencedError(FairleadError):
    """Another scheduler has taken over; this one must not write."""

    code = "fenced"
