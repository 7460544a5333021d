"""How the members of a gang leave after the same step when no server tells them after which.

Each says in the directory of their checkpoints how many steps it has started, and starts no more.
Once all have said so, those behind go on to the greatest number. The names of empty files say it,
so that nobody reads half of one.
"""

import os
from contextlib import suppress


class GangExit:
    """One member's side of it."""

    def __init__(self, directory: str, lease: int, rank: int, members: int) -> None:
        self._directory, self._lease = directory, lease
        self._rank, self._members = rank, members

    def has_begun(self) -> bool:
        """Tell whether a member of the gang leaves that could not ask the server."""
        return bool(self._said())

    def last_step(self, started: int) -> int | None:
        """Say that no step starts after so many; return the last one, None while some are silent.

        What was said first counts.
        """
        said = self._said()
        if self._rank not in said:
            with suppress(OSError):  # no room: the others do not hear of it
                name = f"{self._lease}.{self._rank}.{started}.leaves"
                with open(os.path.join(self._directory, name), "wb"):
                    said[self._rank] = started
        return max(said.values()) if len(said) == self._members else None

    def _said(self) -> dict[int, int]:
        """Return rank → steps it has started."""
        said: dict[int, int] = {}
        with suppress(OSError):
            for name in os.listdir(self._directory):
                if name.startswith(f"{self._lease}.") and name.endswith(".leaves"):
                    _, rank, started, _ = name.split(".")
                    said[int(rank)] = int(started)
        return said
