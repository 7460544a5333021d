"""One copy's part of a job: its number of steps, and the items that it trains on."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")

COPY, STEPS = "FAIRLEAD_COPY", "FAIRLEAD_COPY_STEPS"
ITEMS, BASE_DIRECTORY = "FAIRLEAD_COPY_ITEMS", "FAIRLEAD_BASE_CHECKPOINT_DIR"
_VARIABLES = (COPY, STEPS, ITEMS, BASE_DIRECTORY)
_GOLDEN_RATIO = 0.6180339887498949
"""its multiples are spread evenly over the unit interval, without a period"""


def is_copy(environment: Mapping[str, str]) -> bool:
    """Return whether a lease gives its process a copy's part."""
    return COPY in environment


def base_directory(environment: Mapping[str, str], directory: str) -> str:
    """Return the checkpoint directory of the job of a process that saves to ``directory``."""
    return environment.get(BASE_DIRECTORY, directory)


def without_part(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables without those of a copy."""
    return {name: value for name, value in environment.items() if name not in _VARIABLES}


class CopyPart:
    """The part of one copy.

    All copies go through the same items, and each trains on its own: those whose number, as a
    multiple of the golden ratio, falls into the copy's part of the unit interval. Copies whose
    parts are as long as their shares of the steps are at the same item when a round ends.
    """

    def __init__(
        self, number: int, steps: int, items: tuple[float, float], base_directory: str
    ) -> None:
        self.number = number
        self.steps = steps
        """steps after which it leaves"""
        self._low, self._high = items
        self.base_directory = base_directory
        """checkpoint directory of the job, from which all copies continue"""
        self.position = 0
        """items that the job and all of its copies are past"""
        self.fetched = 0
        """items that this process has fetched, those of other copies included"""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "CopyPart | None":
        """Return the part that a lease gives its process; None for the job itself."""
        if not is_copy(environment):
            return None
        low, _, high = environment[ITEMS].partition(":")
        steps, directory = int(environment[STEPS]), environment[BASE_DIRECTORY]
        return cls(int(environment[COPY]), steps, (float(low), float(high)), directory)

    def environment(self) -> dict[str, str]:
        """Return the variables from which ``of`` reads this part."""
        return {
            COPY: str(self.number),
            STEPS: str(self.steps),
            ITEMS: f"{self._low!r}:{self._high!r}",
            BASE_DIRECTORY: self.base_directory,
        }

    def own_items(self, items: Iterator[T]) -> Iterator[T]:
        """Yield the items of this copy; fetch and drop those of the others."""
        for item in items:
            mine = self._low <= self.position * _GOLDEN_RATIO % 1.0 < self._high
            self.position += 1
            self.fetched += 1
            if mine:
                yield item
