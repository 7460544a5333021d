"""Hugging Face ``accelerate``: registers everything that an ``Accelerator`` has prepared."""

from typing import Any

from fairlead.job.run import Run


def register(run: Run, accelerator: Any) -> None:
    """Register the prepared models, optimizers, schedulers and loaders, and the scaler.

    Objects given to ``accelerator.register_for_checkpointing`` are included.
    """
    prepared = {
        "model": accelerator._models,
        "optimizer": accelerator._optimizers,
        "scheduler": accelerator._schedulers,
        "loader": accelerator._dataloaders,
        "object": accelerator._custom_objects,
    }
    named = {
        f"{kind}{number}": thing
        for kind, things in prepared.items()
        for number, thing in enumerate(things)
    }
    if accelerator.scaler is not None:
        named["scaler"] = accelerator.scaler
    run.register(**named)
