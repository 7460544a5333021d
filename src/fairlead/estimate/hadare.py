"""HadarE's first guess of speeds, before anything was measured (Eq. 10)."""

import math
from dataclasses import dataclass
from typing import Literal

# The paper names the scales but prints none of them: docs/design/hadar.md says why these.
MODEL_WEIGHT = {"small": 1.0, "modest": 2.0, "high": 4.0, "extra high": 8.0}
DATASET_SIZE = {"S": 1.0, "M": 2.0, "L": 4.0, "XL": 8.0}
PCIE_SCALING = {2: 0.8, 3: 1.0, 4: 1.2, 5: 1.4}


@dataclass(frozen=True, slots=True)
class Device:
    """Data-sheet figures of an accelerator and its board."""

    tflops: float
    """with tensor cores where it has them"""
    memory_gib: float
    pcie: int = 3
    """generation of its bus"""

    @property
    def performance_memory_index(self) -> float:
        """PMI: the square root of teraflops per GiB."""
        return math.sqrt(self.tflops / self.memory_gib)


@dataclass(frozen=True, slots=True)
class Training:
    """Facts about a workload that are known without running it."""

    batch_size: int
    weight: Literal["small", "modest", "high", "extra high"] = "modest"
    dataset: Literal["S", "M", "L", "XL"] = "M"


def first_guess(device: Device, training: Training) -> float:
    """Return Eq. 10; only ratios between devices mean anything, the unit is arbitrary."""
    speed = device.performance_memory_index * training.batch_size * PCIE_SCALING[device.pcie]
    return speed / (MODEL_WEIGHT[training.weight] * DATASET_SIZE[training.dataset])
