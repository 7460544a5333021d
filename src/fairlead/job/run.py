"""A training run: the same script inside the scheduler and outside of it."""

import os
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
_MAX_NAME_LENGTH = 128


def attach() -> "Run":
    """Return this process's run: under the scheduler if that started it, else a plain one."""
    found = os.environ.get("FAIRLEAD_LEASE")
    if not found:
        return Run()
    from fairlead.job.leased_run import LeasedRun  # noqa: PLC0415  # a plain run needs none of it

    return LeasedRun(int(found), os.environ)


class Run:
    """A plain run: nothing is saved, renewed or slowed down."""

    rank = 0
    world_size = 1
    accelerator: str | None = None
    checkpoint_dir: str | None = None

    def __init__(self) -> None:
        self.steps_done = 0
        """steps made by this run and those before it"""

    def register(self, **things: Any) -> None:
        """Name what makes up the run's state; what an earlier checkpoint holds is restored.

        A thing has ``state_dict`` and ``load_state_dict``, or is a dict, which is updated in
        place.
        """
        for name, thing in things.items():
            _check(name, thing)

    def report(self, **metrics: float) -> None:
        """Show figures such as the loss beside the job's progress."""
        for name in metrics:
            if not 0 < len(name) <= _MAX_NAME_LENGTH or not name.isprintable():
                raise ValueError(
                    f"report({name[:20]!r}…): give names of at most {_MAX_NAME_LENGTH} characters"
                )

    def checkpoint(self) -> None:
        """Save the state: now, or when the step ends that is being made.

        All members of a gang must call this in or after the same step.
        """

    def steps(self, items: Iterable[T]) -> Iterator[T]:
        """Yield one item for each step still to make."""
        for item in items:
            yield item
            self.steps_done += 1


def _check(name: str, thing: Any) -> None:
    if isinstance(thing, dict):
        return
    for method in ("state_dict", "load_state_dict"):
        if not callable(getattr(thing, method, None)):
            raise TypeError(
                f"register({name}=…): a {type(thing).__name__} has no {method}();"
                " give a dict or something with state_dict and load_state_dict"
            )
