"""Rejected entries of a request for many jobs: ``jobs[17].gang: …`` names the entry."""

from collections.abc import Callable

from fairlead.model.errors import FairleadError, InputError

Reject = Callable[[int, FairleadError], None]
"""receives index and error of a rejected job; raises unless the other jobs may change"""


def reject_job(index: int, error: FairleadError) -> None:
    """Raise the error of the only job of a request."""
    del index
    raise error


def reject_request(index: int, error: FairleadError) -> None:
    """Raise the error of a job of many, with the name of its entry."""
    raise at_entry(index, error)


def at_entry(index: int, error: FairleadError) -> FairleadError:
    """Return an error with the name of the entry that it is about."""
    entry = f"jobs[{index}]"
    if isinstance(error, InputError):
        field = entry if error.field is None else f"{entry}.{error.field}"
        return InputError(error.problem, fix=error.fix, field=field)
    error.args = (f"{entry}: {error}",)  # its class and its other attributes stay
    return error
