"""Agreement of a gang's members on their last step when the server is unreachable.

Each member announces in the checkpoint directory how many steps it has started, and starts no
more. Once all have announced theirs, those behind continue up to the greatest number. An
announcement is the name of an empty file, so that no member reads half of one.
"""

import os
from contextlib import suppress


class GangExit:
    """One member's side of the agreement."""

    def __init__(self, directory: str, lease: int, rank: int, members: int) -> None:
        self._directory, self._lease = directory, lease
        self._rank, self._members = rank, members

    def has_begun(self) -> bool:
        """Return whether a member of the gang leaves without the server."""
        return bool(self._announced_steps())

    def last_step(self, started: int) -> int | None:
        """Announce the number of steps started; return the gang's last step.

        Returns None until all members have announced theirs. A member's first announcement counts.
        """
        announced = self._announced_steps()
        if self._rank not in announced:
            with suppress(OSError):  # disk full: the other members get no announcement
                name = f"{self._lease}.{self._rank}.{started}.leaves"
                with open(os.path.join(self._directory, name), "wb"):
                    announced[self._rank] = started
        return max(announced.values()) if len(announced) == self._members else None

    def _announced_steps(self) -> dict[int, int]:
        """Return rank → number of steps started."""
        announced: dict[int, int] = {}
        with suppress(OSError):
            for name in os.listdir(self._directory):
                if name.startswith(f"{self._lease}.") and name.endswith(".leaves"):
                    _, rank, started, _ = name.split(".")
                    announced[int(rank)] = int(started)
        return announced
