"""Lightning: a callback that resumes ``Trainer.fit`` in the middle of an epoch.

```python
trainer = lightning.Trainer(max_epochs=90, callbacks=[FairleadCallback(job.attach())])
```
"""

from typing import Any

from lightning.pytorch import Callback

from fairlead.job.run import Run
from fairlead.job.torch.framework_steps import FrameworkSteps


class FairleadCallback(Callback):
    """Registers the model, optimizers, schedulers, loaders and callbacks of a trainer.

    A step is one of the optimizer: batches whose gradients are accumulated make one step.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._steps = FrameworkSteps(run)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Restore the state of the checkpoint, if there is one."""
        del pl_module
        progress = _Progress(trainer.fit_loop)
        self._steps = FrameworkSteps(self._run, on_start=progress.restore_batches)
        loaders = trainer.fit_loop._combined_loader.flattened
        for loader in loaders:  # workers that Lightning has started know no positions
            if getattr(loader, "_iterator", None) is not None:
                loader._iterator = None
        self._run.register(model=trainer.model, progress=progress, **_others(trainer, self))
        self._steps.register(**{f"loader{n}": loader for n, loader in enumerate(loaders)})
        if trainer.current_epoch == 0:  # Lightning made the iterator of its first epoch before
            iter(trainer.fit_loop._data_fetcher)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the step, unless gradients are accumulated."""
        del pl_module, outputs, batch, batch_idx
        if not trainer.fit_loop._should_accumulate():
            self._steps.step_done()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Save the state."""
        del trainer, pl_module
        self._steps.finish()


def _others(trainer: Any, own: Callback) -> dict[str, Any]:
    """Return optimizers, schedulers, the gradient scaler and the other callbacks by name."""
    callbacks = [one for one in trainer.callbacks if one is not own]
    lists = {
        "optimizer": trainer.optimizers,
        "scheduler": [config.scheduler for config in trainer.lr_scheduler_configs],
        "callback": callbacks,
    }
    named = {f"{kind}{n}": one for kind, things in lists.items() for n, one in enumerate(things)}
    return {**named, "precision": trainer.precision_plugin}


class _Progress:
    """Counters of epochs, batches and optimizer steps.

    Lightning resumes its own checkpoints in stages that depend on the hook that saved them. This
    sets the counters only, at the places where a new run sets them to 0.
    """

    def __init__(self, fit_loop: Any) -> None:
        self._fit_loop = fit_loop
        self._restored: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return all counters."""
        state: dict[str, Any] = self._fit_loop.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the counters; those of batches again once the epoch has begun."""
        self._restored = state
        epochs = self._fit_loop.epoch_progress
        epochs.load_state_dict(state["epoch_progress"])
        for counter in (epochs.total, epochs.current):
            counter.reset_on_restart()  # the epoch begins again, in its middle
        _load(self._fit_loop.epoch_loop, state, "epoch_loop.")

    def restore_batches(self) -> None:
        """Restore the counters that Lightning sets to 0 when an epoch begins."""
        if self._restored is not None:
            epoch_loop = self._fit_loop.epoch_loop
            _load(epoch_loop, self._restored, "epoch_loop.")
            self._fit_loop._data_fetcher.fetched = epoch_loop.batch_progress.current.ready
            self._restored = None


def _load(loop: Any, state: dict[str, Any], prefix: str) -> None:
    """Set the counters of a loop and of those inside it."""
    loop._load_from_state_dict(state, prefix)
    for name, inner in vars(loop).items():
        if hasattr(inner, "_load_from_state_dict"):
            _load(inner, state, f"{prefix}{name}.")
