"""Speeds that running jobs have measured."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fairlead.model.speeds.key import SpeedKey

MAX_MEASURED = 10_000
"""speeds kept; the oldest are dropped first"""


class MeasuredSpeed(NamedTuple):
    """A measured speed and the time of its last change."""

    steps_per_s: float
    at: float


class MeasuredSpeeds:
    """The last measured speed of every workload, gang and accelerator."""

    def __init__(self) -> None:
        self.by_key: dict[SpeedKey, MeasuredSpeed] = {}
        """in the order of their last change"""

    def record(self, key: SpeedKey, steps_per_s: float, at: float) -> None:
        """Replace a speed."""
        self.by_key.pop(key, None)
        self.by_key[key] = MeasuredSpeed(steps_per_s, at)
        if len(self.by_key) > MAX_MEASURED:
            del self.by_key[next(iter(self.by_key))]

    @property
    def steps_per_s(self) -> Mapping[SpeedKey, float]:
        """The speeds without their times."""
        return {key: measured.steps_per_s for key, measured in self.by_key.items()}

    def saved(self) -> list[tuple[str, int, str, float, float]]:
        """Return the speeds in their order, for ``restore``."""
        return [
            (key.workload, key.gang, key.accelerator, *measured)
            for key, measured in self.by_key.items()
        ]

    def restore(self, saved: Iterable[tuple[str, int, str, float, float]]) -> None:
        """Take the speeds that ``saved`` returned."""
        self.by_key = {
            SpeedKey(workload, gang, accelerator): MeasuredSpeed(steps_per_s, at)
            for workload, gang, accelerator, steps_per_s, at in saved
        }
