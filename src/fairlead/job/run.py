"""A training run outside the scheduler, with the interface of one under a lease."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from fairlead.job.registration import adapt

T = TypeVar("T")
_MAX_NAME_LENGTH = 128


class Run:
    """A plain run: nothing is saved, renewed or slowed down."""

    rank = 0
    world_size = 1
    accelerator: str | None = None
    checkpoint_dir: str | None = None
    lease: int | None = None
    """number of the present lease"""
    copy = 0
    """number of this copy of a job that trains in several at once; 0: the job itself"""

    def __init__(self) -> None:
        self.steps_done = 0
        """steps made by this run and earlier ones of the job"""

    def batch_size(self, global_batch: int) -> int:
        """Return this rank's part of a global batch, which does not depend on the gang's size.

        The parts of two ranks differ by one item at most.
        """
        if global_batch < self.world_size:
            raise ValueError(
                f"batch_size({global_batch}): a gang of {self.world_size} ranks:"
                " expected at least one item per rank"
            )
        each, rest = divmod(global_batch, self.world_size)
        return each + (self.rank < rest)

    def register(self, **things: Any) -> None:
        """Name the objects that make up the run's state, and restore them from a checkpoint.

        An object has ``state_dict`` and ``load_state_dict``, or is a dict or a list, which is
        updated in place. DataLoaders, samplers, generators and tensors of PyTorch's work, too;
        with any object of PyTorch's the random states are saved as well.
        """
        for name, thing in things.items():
            adapt(name, thing)

    def on_resize(self, call: Callable[[], object] = lambda: None) -> None:
        """Let this process continue when its gang changes size; ``call`` runs after each change.

        Without it all members are restarted. The program must read ``rank`` and ``world_size``
        in each step that depends on them, or in ``call``; a registered loader with a
        GlobalBatchSampler and a ScaledLearningRate follow by themselves.
        """

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

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the number of each remaining epoch, from 0; the last one may be resumed inside."""
        yield from range(count)

    def steps(self, items: Iterable[T]) -> Iterator[T]:
        """Yield one item per remaining step."""
        for item in items:
            self.begin_step()
            yield item
            self.end_step()

    def start(self) -> None:
        """Continue from the checkpoint: called before a framework's loop fetches its first item.

        ``start``, ``begin_step``, ``end_step`` and ``finish`` replace ``steps`` where a framework
        owns the loop.
        """

    def begin_step(self) -> None:
        """Start a step; leave if the lease ends."""

    def end_step(self) -> None:
        """Count a step as done; save the state if it is time."""
        self.steps_done += 1

    def finish(self) -> None:
        """Save the state after the last step."""
