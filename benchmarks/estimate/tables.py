"""Measured tables of others: Gavel's speeds and pairs, Sia's profiles."""

import csv
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairlead.estimate.cells import Cells
from fairlead.files import read_speeds
from fairlead.files.bundled import data_sheets
from fairlead.model.arrays import FloatArray
from fairlead.model.speeds.key import Consolidation, SpeedKey

SIA_GPUS = {
    "aws": "t4",
    "azure": "v100-32gb",
    "dgx-ext": "a100",
    "rtx": "rtx-2080-ti",
    "quad": "quadro-rtx-6000",
}
"""cluster of Sia's profiles → its accelerator"""
SIA_APPS = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")
_SIA_PLACEMENTS = ("1", "2", "4", "11", "22", "44")
"""devices on each node; those that all clusters have, and two nodes of the larger ones"""


@dataclass(frozen=True)
class Measured:
    """The cells of a table with their measured values."""

    keys: list[SpeedKey]
    cells: Cells
    value: FloatArray
    """steps per second, or the part of its speed that a packed workload keeps"""

    @classmethod
    def of(cls, values: dict[SpeedKey, float]) -> "Measured":
        keys = list(values)
        return cls(keys, Cells.of(keys, data_sheets()), np.array(list(values.values())))


def shared_data() -> Path:
    """Return the directory with the tables: $FAIRLEAD_SHARED or ../shared."""
    configured = os.environ.get("FAIRLEAD_SHARED")
    return Path(configured or Path(__file__).parents[3] / "shared") / "data"


def gavel_speeds() -> Measured:
    """Return Gavel's 489 speeds of workloads alone that are above 0."""
    speeds = read_speeds(shared_data() / "gavel/simulation_throughputs.json.gz").steps_per_s
    alone = {key: speed for key, speed in speeds.items() if key.partner is None and speed > 0.0}
    return Measured.of(alone)


def gavel_pairs() -> Measured:
    """Return the parts of their speeds that packed workloads keep on one device."""
    speeds = read_speeds(shared_data() / "gavel/simulation_throughputs.json.gz").steps_per_s
    return Measured.of(
        {
            key: speed / speeds[key._replace(partner=None)]
            for key, speed in speeds.items()
            if key.partner is not None
            and key.gang == 1
            and key.placement == "consolidated"
            and speed > 0.0
        }
    )


def sia_speeds() -> Measured:
    """Return speeds of Sia's six applications: three batch sizes each, six placements."""
    speeds: dict[SpeedKey, float] = {}
    for app in SIA_APPS:
        rows = {gpu: _sia_rows(app, cluster) for cluster, gpu in SIA_GPUS.items()}
        common = sorted(set.intersection(*({size for size, _ in of} for of in rows.values())))
        sizes = (common[0], common[len(common) // 2], common[-1])
        for gpu, of in rows.items():
            for (size, placement), step_s in of.items():
                if size in sizes and placement in _SIA_PLACEMENTS:
                    gang = sum(map(int, placement))
                    link: Consolidation = "consolidated" if len(placement) == 1 else "spread"
                    key = SpeedKey(f"{app} (batch size {size})", gang, gpu, link)
                    speeds[key] = 1.0 / step_s
    return Measured.of(speeds)


def _sia_rows(app: str, cluster: str) -> dict[tuple[int, str], float]:
    """Return batch size and placement → seconds of a step."""
    path = shared_data() / f"sia/profiles/{app}/placements-{cluster}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (int(float(row["local_bsz"])), row["placement"]): float(row["step_time"])
            for row in csv.DictReader(file)
        }
