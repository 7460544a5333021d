"""A keeper's side of the messages with one member: what that has declared so far."""

import socket

from fairlead.job.keeper.channel import Channel

_MAX_NUMBER = 2.0**53
"""maximum of a number that a process sends"""
_MAX_TEXT = 200


class Dialogue:
    """The messages of one member under its present lease."""

    def __init__(self) -> None:
        own, self.member_end = socket.socketpair()
        own.setblocking(False)
        self.channel = Channel(own)
        self.uses_library = False
        """the process has attached, or is about to"""
        self.can_park = False
        """the process has declared that it can"""
        self.has_asked = False
        """it waits for the answer whether to park"""
        self.obstacle = ""
        """reason that it has given for which it cannot"""
        self.was_allowed = False
        """the last answer allowed it to park"""
        self.more_gib = 0.0
        """host memory that it will use besides, by its own account"""
        self.is_parked = False
        self.unsaved: float | None = None
        """steps that it was about to save when it parked; None if there were none"""
        self.resizes = False
        """it can continue in a gang of another size"""
        self.is_saved = False
        """it has declared that all of its steps are committed"""
        self.is_ready = False
        """it waits for its first lease"""

    def hear(self) -> None:
        """Read the messages that have arrived."""
        for kind, fields in self.channel.receive():
            if kind == "attaching":
                self.uses_library = True
            elif kind == "can_park":
                self.uses_library = self.can_park = True
            elif kind == "leaving" and not self.is_parked:
                self.has_asked = True
                self.more_gib = _number(fields.get("more_gib")) or 0.0
                self.obstacle = _printable(fields.get("obstacle", ""))
            elif kind == "parked" and self.was_allowed:
                self.was_allowed, self.is_parked = False, True
                self.unsaved, self.is_saved = _number(fields.get("unsaved")), False
                self.resizes = fields.get("resizes") == "1"
            elif kind == "saved" and self.is_parked:
                self.is_saved = True
            elif kind == "can_resize":
                self.resizes = True
            elif kind == "ready":
                self.is_ready = True
        if self.channel.closed:
            self.can_park = False

    def answer(self, *, allowed: bool) -> None:
        """Tell the process whether to park."""
        self.has_asked, self.was_allowed = False, allowed
        self.channel.send("park" if allowed else "exit")


def _printable(text: str) -> str:
    return "".join(filter(str.isprintable, text))[:_MAX_TEXT]


def _number(text: str | None) -> float | None:
    """Return a number that a process has sent, None if it is none or out of range."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number <= _MAX_NUMBER else None
