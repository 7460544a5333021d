"""Files in a keeper's first directory by which its gang grows: the request, and its state."""

from contextlib import suppress
from pathlib import Path

from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper import lease_dir

_REQUEST = "growth.json"
_STATE = "newcomers.json"

READY, FAILED, DROPPED = "ready", "failed", "dropped"
"""states of a request; dropped: refused, or no longer wanted"""


def request_growth(home: Path, order: LaunchOrder | None) -> None:
    """Ask a keeper to start the members that an order has beyond its gang; None: to end them.

    The order's lease is the number of the request.
    """
    with suppress(OSError):  # the keeper has ended, or the disk is full: the gang grows without
        content = {} if order is None else lease_dir.as_dict(order)
        lease_dir.write_json(home / _REQUEST, content, durable=False)


def is_requested(home: Path) -> bool:
    """Return whether a keeper was asked for something that it has not done yet."""
    return (home / _REQUEST).exists()


def take_request(home: Path) -> LaunchOrder | None:
    """Return the order of the last request and forget it; None: new members must end."""
    try:
        return lease_dir.read_order(home, _REQUEST)
    except OSError:
        return None
    finally:
        with suppress(OSError):  # it is read again, which ends no process then
            (home / _REQUEST).unlink()


def write_state(home: Path, request: int, state: str, gib: float = 0.0) -> None:
    """Tell the supervisor how a request stands, and the host memory of the new members."""
    content = {"request": request, "state": state, "gib": gib}
    with suppress(OSError):  # disk full: the supervisor stops waiting after a while
        lease_dir.write_json(home / _STATE, content, durable=False)


def read_state(home: Path, request: int) -> tuple[str, float]:
    """Return how a request stands and the host memory of the new members; empty: not known yet."""
    content = lease_dir.read_json(home / _STATE) or {}
    state, gib = content.get("state"), content.get("gib")
    if content.get("request") != request or not isinstance(state, str):
        return "", 0.0
    return (state, float(gib)) if lease_dir.is_number(gib) else ("", 0.0)
