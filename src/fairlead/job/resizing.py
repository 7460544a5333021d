"""Change of the size of a gang whose members stay."""

from collections.abc import Callable
from typing import Any

from fairlead.job.registration import RegisteredState


class Resizing:
    """Continues one member in a gang of another size."""

    def __init__(self, state: RegisteredState) -> None:
        self._state = state
        self.calls: list[Callable[[], object]] = []
        """functions that the program wants to be called after a change; none: it cannot follow"""
        self.items: Any = None
        """iterable of the training loop; None where a framework owns the loop"""
        self._is_due = False

    def is_possible(self) -> bool:
        """Return whether this process can follow a change of size."""
        return bool(self.calls) and self.items is not None and self._state.can_resize(self.items)

    def follow(self, rank: int, world_size: int) -> None:
        """Continue as a rank of a gang of another size."""
        self._is_due = self._state.resized(rank, world_size)
        for call in self.calls:
            call()

    def is_item_obsolete(self) -> bool:
        """Return, once after a change, whether the present item was a part for the size before."""
        is_due, self._is_due = self._is_due, False
        return is_due
