"""Steps of a training loop that a framework owns.

A step ends where the framework fetches the batch of the next one. It thus includes the schedules,
the validation and the end of an epoch between the two, and no checkpoint falls in between.
"""

from collections.abc import Callable
from typing import Any

from fairlead.job.run import Run
from fairlead.job.torch.loaders import resume_loader


class FrameworkSteps:
    """Counts the steps of a run where its framework fetches batches."""

    def __init__(self, run: Run, *, on_start: Callable[[], None] = lambda: None) -> None:
        """Count the steps of a run; ``on_start`` is called before the first batch is fetched."""
        self._run, self._on_start = run, on_start
        self._has_started = self._in_step = self._is_done = False

    def register(self, **loaders: Any) -> None:
        """Register the loaders, of which the framework asks the first one first."""
        for name, loader in loaders.items():
            if not _has_length(loader):
                raise TypeError(
                    f"{name}: a loader without a length: expected one of a data set with"
                    " __len__, or a loop of your own with run.steps"
                )
        positions = [resume_loader(name, loader) for name, loader in loaders.items()]
        self._run.register(**loaders)
        for position in positions:
            position.continue_pass()
        positions[0].before_item = self._before_batch

    def step_done(self) -> None:
        """Note that the optimizer has made its step: the next batch belongs to the next one."""
        self._is_done = True

    def finish(self) -> None:
        """End the last step, and save the state."""
        self._end_step()
        self._run.finish()

    def _before_batch(self) -> None:
        if not self._has_started:
            self._has_started = True
            self._run.start()
            self._on_start()
        self._end_step()
        if not self._in_step:
            self._in_step = True
            self._run.begin_step()

    def _end_step(self) -> None:
        if self._in_step and self._is_done:
            self._in_step = self._is_done = False
            self._run.end_step()


def _has_length(loader: Any) -> bool:
    try:
        len(loader)
    except TypeError:  # of an IterableDataset, or no __len__ at all
        return False
    return True
