"""The file in which a process tells its keeper how it ends.

A process that gives up its devices writes its exit status, which a shell around it may hide. One
that exits by itself writes that: if it exits with 0, its job is done, even if its lease is stopped
meanwhile. Keepers of earlier versions ignore the latter.
"""

import os
from contextlib import suppress

MAX_BYTES = 64
_OWN_EXIT = "exits by itself"


class StatusFile:
    """One process's side of the file."""

    def __init__(self, path: str | None) -> None:
        """Write to this file, or nowhere."""
        self._path = path
        self._pid = os.getpid()

    def write_status(self, status: int) -> None:
        """Write the status with which this process exits."""
        self._write(str(status))

    def note_own_exit(self, steps: int) -> None:
        """Note that this process exits by itself after these steps, unless it is a fork."""
        if os.getpid() == self._pid and not self._has_status():
            self._write(f"{_OWN_EXIT} {self._pid} {steps}")

    def _has_status(self) -> bool:
        """Return whether a process before this one has left with a status, which counts."""
        with suppress(OSError), open(self._path or os.devnull, encoding="ascii") as file:
            return file.read(MAX_BYTES).isdecimal()
        return False

    def _write(self, text: str) -> None:
        if self._path:
            with suppress(OSError), open(self._path, "w", encoding="ascii") as file:
                file.write(text)


def steps_at_own_exit(content: bytes, pid: int) -> float | None:
    """Return the steps of a process that has exited by itself; None if that is unknown.

    What another process than ``pid`` has noted tells nothing: a shell may run one after another.
    """
    words = content.decode("ascii", "replace").rsplit(" ", 2)
    if len(words) != 3 or words[:2] != [_OWN_EXIT, str(pid)]:
        return None
    return float(words[2]) if words[2].isascii() and words[2].isdecimal() else None
