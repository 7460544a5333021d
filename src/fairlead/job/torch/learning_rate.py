"""Learning rates that follow the size of an elastic gang."""

import math
from typing import Any, Literal

import torch

from fairlead.job.torch.global_batches import gang_position

_GROUP_RATES = ("lr", "initial_lr", "max_lr", "min_lr")
_SCHEDULER_RATES = ("base_lrs", "_last_lr")


class ScaledLearningRate:
    """Scales the learning rates of an optimizer and its schedulers with the gang.

    For programs whose global batch grows with the gang. The rates that the program sets are those
    of ``gang`` ranks; they grow in proportion to the ranks (``linear``) or to their square root
    (``sqrt``). Register it after the optimizer and the schedulers.
    """

    def __init__(
        self,
        optimizer: Any,
        *schedulers: Any,
        gang: int,
        rule: Literal["linear", "sqrt"] = "linear",
        world_size: int | None = None,
    ) -> None:
        if rule not in ("linear", "sqrt"):
            raise ValueError(f"rule: {rule!r}: expected linear or sqrt")
        self._gang, self._rule = gang, rule
        self._factor = self._factor_of(world_size or gang_position()[1])
        self._optimizer, self._schedulers = optimizer, schedulers
        self._scale(self._factor)

    def state_dict(self) -> dict[str, float]:
        """Return the factor that the optimizer's rates contain."""
        return {"factor": self._factor}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Scale the restored rates of a gang of another size to those of this gang."""
        self._scale(self._factor / state["factor"])

    def resized(self, rank: int, world_size: int) -> None:
        """Scale the rates to those of a gang of another size."""
        del rank
        before, self._factor = self._factor, self._factor_of(world_size)
        self._scale(self._factor / before)

    def _factor_of(self, world_size: int) -> float:
        ratio = world_size / self._gang
        return ratio if self._rule == "linear" else math.sqrt(ratio)

    def _scale(self, factor: float) -> None:
        if factor == 1.0:
            return
        for group in self._optimizer.param_groups:
            for name in _GROUP_RATES:
                if name not in group:
                    continue
                if isinstance(group[name], torch.Tensor):  # a compiled optimizer keeps it
                    group[name].mul_(factor)
                else:
                    group[name] *= factor
        for scheduler in self._schedulers:
            for one in (scheduler, *getattr(scheduler, "_schedulers", ())):
                for name in _SCHEDULER_RATES:
                    if hasattr(one, name):
                        setattr(one, name, [rate * factor for rate in getattr(one, name)])
