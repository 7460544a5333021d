"""Hugging Face ``transformers``: ``train`` resumes a ``Trainer`` in the middle of an epoch.

```python
train(job.attach(), trainer)  # instead of trainer.train()
```
"""

import dataclasses
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transformers.trainer
from transformers import TrainerCallback

from fairlead.job.run import Run
from fairlead.job.torch.framework_steps import FrameworkSteps
from fairlead.job.torch.loaders import is_resumable


def train(run: Run, trainer: Any) -> Any:
    """Train with a ``Trainer`` from the checkpoint, if there is one; return what it returns.

    A step is one of the optimizer: batches whose gradients are accumulated make one step.
    """
    progress = _Progress(trainer)
    run.register(progress=progress)
    trainer.add_callback(_Callback(run, trainer))
    with _resumable_by(trainer), tempfile.TemporaryDirectory() as directory:
        if progress.restored is None:
            return trainer.train()
        # The trainer reads its counters from a checkpoint of its own, in which nothing else is.
        name = transformers.trainer.TRAINER_STATE_NAME
        Path(directory, name).write_text(progress.restored, encoding="utf-8")
        return trainer.train(resume_from_checkpoint=directory)


class _Callback(TrainerCallback):
    """Registers the trainer's objects, and counts its steps."""

    def __init__(self, run: Run, trainer: Any) -> None:
        self._run, self._trainer = run, trainer
        self._steps = FrameworkSteps(run)

    def on_train_begin(self, *_: Any, train_dataloader: Any, **__: Any) -> None:
        """Restore the state of the checkpoint, if there is one."""
        trainer = self._trainer
        scaler = trainer.accelerator.scaler
        self._run.register(
            model=trainer.model,
            optimizer=trainer.optimizer,
            scheduler=trainer.lr_scheduler,
            **({} if scaler is None else {"scaler": scaler}),
        )
        self._steps.register(loader=train_dataloader)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Count the optimizer's step."""
        self._steps.step_done()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Save the state."""
        self._steps.finish()


class _Progress:
    """The trainer's counters and history, as JSON."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.restored: str | None = None

    def state_dict(self) -> dict[str, str]:
        """Return the counters."""
        return {"state": json.dumps(dataclasses.asdict(self._trainer.state))}

    def load_state_dict(self, state: dict[str, str]) -> None:
        """Keep the counters until the trainer starts."""
        self.restored = state["state"]


@contextmanager
def _resumable_by(trainer: Any) -> Iterator[None]:
    """Take a trainer's weights and position from the registered objects meanwhile."""
    module: Any = transformers.trainer
    skip = module.skip_first_batches

    def skip_unless_registered(loader: Any, batches: int) -> Any:
        return loader if is_resumable(loader) else skip(loader, batches)

    module.skip_first_batches = skip_unless_registered
    trainer._load_from_checkpoint = lambda *_, **__: None
    try:
        yield
    finally:
        module.skip_first_batches = skip
        del trainer._load_from_checkpoint
