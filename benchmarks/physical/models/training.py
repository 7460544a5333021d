"""A model in training: the objects that make up its state, and its next step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Training:
    """A model in training on one device."""

    parts: Mapping[str, Any]
    """objects for ``run.register``"""
    step: Callable[[], Any]
    """makes a step on the next batch and returns its loss, a tensor on the device"""


def supervised(model: Any, optimizer: Any, loss_of_batch: Callable[[], Any]) -> Training:
    """Return the training of one model by one optimizer."""

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of_batch()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training({"model": model, "optimizer": optimizer}, step)
