"""Messages between a job's process and its keeper, one JSON object per line.

| from | message | meaning |
|---|---|---|
| process | ``attaching`` | it uses the library |
| process | ``can_park`` | it can give up its device and stay |
| process | ``can_resize`` | it can continue in a gang of another size |
| keeper | ``stop`` | the lease may have to end: renew it now |
| process | ``leaving`` | last step made: staying takes ``more_gib`` of host memory, or it cannot |
| keeper | ``park``, ``exit`` | answer to ``leaving`` |
| process | ``parked`` | its device is free; ``unsaved`` steps follow; ``resizes`` with its gang |
| process | ``saved`` | all of its steps are committed |
| process | ``ready`` | it was started before its first lease, and waits for it |
| keeper | ``resume`` | it has a new lease, described by environment variables |
"""

import json
import socket
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any

VARIABLE = "FAIRLEAD_KEEPER_FD"
"""environment variable with the descriptor of the process's end"""
JOINS = "FAIRLEAD_JOINS"
"""environment variable of a process that is started for a gang whose other members have stayed"""
RENDEZVOUS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""environment variables by which the members of a gang meet under a lease"""
_MAX_BYTES = 1 << 18
"""maximum size of unread messages: no honest peer sends more"""


class Channel:
    """One end of the connection between a process and its keeper."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._unread = b""
        self.closed = False
        """the other end is gone, or sends what no message is"""

    def fileno(self) -> int:
        """Return the descriptor of this end."""
        return self._end.fileno()

    def detach(self) -> None:
        """Give up this end without closing it."""
        self._end.detach()

    def close(self) -> None:
        """Close this end."""
        self._end.close()

    def send(self, kind: str, environment: Mapping[str, str] | None = None) -> None:
        """Send a message; a peer that is gone gets none."""
        message = {"kind": kind, "environment": dict(environment or {})}
        with suppress(OSError):
            self._end.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[tuple[str, dict[str, str]]]:
        """Return the (kind, environment) of new messages; with none, wait if the end blocks."""
        try:
            chunk = self._end.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            chunk = b""
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        self.closed = not chunk or len(self._unread) > _MAX_BYTES
        return [message for line in lines if (message := _parse(line)) is not None]

    def receive_waiting(self) -> list[tuple[str, dict[str, str]]]:
        """Return the (kind, environment) of messages that have arrived, without waiting."""
        self._end.setblocking(False)
        try:
            return self.receive()
        finally:
            self._end.setblocking(True)


def open_channel(environment: Mapping[str, str]) -> Channel | None:
    """Return the process's end; None if its keeper offers none."""
    descriptor = environment.get(VARIABLE, "")
    if not descriptor.isdigit():
        return None
    try:
        end = socket.socket(fileno=int(descriptor))
    except OSError:  # a program between keeper and process has closed it
        return None
    end.set_inheritable(False)
    return Channel(end)


def announce(environment: MutableMapping[str, str]) -> None:
    """Tell the keeper that this process uses the library, and set the variables of its lease.

    A process that was suspended before it attached has another lease than at its start.
    """
    channel = open_channel(environment)
    if channel is None:
        return
    channel.send("attaching")
    for kind, variables in channel.receive_waiting():
        if kind == "resume":
            environment.update(variables)
    channel.detach()  # the run opens it again


def _parse(line: bytes) -> tuple[str, dict[str, str]] | None:
    """Return the message of a line; None if it is none."""
    try:
        content: Any = json.loads(line)
        environment = {str(name): str(value) for name, value in content["environment"].items()}
        return str(content["kind"]), environment
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
