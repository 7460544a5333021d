"""A training run outside the scheduler, with the interface of one under a lease."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
_MAX_NAME_LENGTH = 128


class Run:
    """A plain run: nothing is saved, renewed or slowed down."""

    rank = 0
    world_size = 1
    accelerator: str | None = None
    checkpoint_dir: str | None = None

    def __init__(self) -> None:
        self.steps_done = 0
        """steps made by this run and earlier ones of the job"""

    def register(self, **things: Any) -> None:
        """Name the objects that make up the run's state, and restore them from a checkpoint.

        An object has ``state_dict`` and ``load_state_dict``, or is a dict, which is updated in
        place.
        """
        for name, thing in things.items():
            _require_state(name, thing)

    def report(self, **metrics: float) -> None:
        """Report metrics such as the loss, to be shown beside the job's progress."""
        for name in metrics:
            if not 0 < len(name) <= _MAX_NAME_LENGTH or not name.isprintable():
                raise ValueError(
                    f"report({name[:20]!r}…): bad name:"
                    f" expected 1 to {_MAX_NAME_LENGTH} printable characters"
                )

    def checkpoint(self) -> None:
        """Save the state: now, or at the end of the current step.

        All members of a gang must call this in or after the same step.
        """

    def steps(self, items: Iterable[T]) -> Iterator[T]:
        """Yield one item per remaining step."""
        for item in items:
            yield item
            self.steps_done += 1


def _require_state(name: str, thing: Any) -> None:
    if isinstance(thing, dict):
        return
    for method in ("state_dict", "load_state_dict"):
        if not callable(getattr(thing, method, None)):
            raise TypeError(
                f"register({name}=…): a {type(thing).__name__} has no {method}():"
                " expected a dict or an object with state_dict and load_state_dict"
            )
