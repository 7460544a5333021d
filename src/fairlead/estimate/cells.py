"""Cells of a speed table as columns of numbers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairlead.estimate.data_sheet import DataSheet, find_sheet
from fairlead.estimate.first_guess import log_device_speed
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.speeds.key import SpeedKey

ONE_DEVICE, CONSOLIDATED, SPREAD = range(3)
"""links of a gang: none, within a node, between nodes"""

_BATCH = re.compile(
    r"^(?P<model>.*?)[ _-]*\(?(?:batch[ _-]?size|batch|bs)[ _=-]*(?P<size>\d+)\)?$"
)


class WorkloadName(NamedTuple):
    """The parts of a workload's name."""

    model: str
    batch_size: int | None


def workload_name(workload: str) -> WorkloadName:
    """Return model and batch size of ``ResNet-18 (batch size 64)``, ``bert-bs32`` and the like."""
    match = _BATCH.match(workload)
    if match is None or not match["model"] or int(match["size"]) < 1:
        return WorkloadName(workload, None)
    return WorkloadName(match["model"], int(match["size"]))


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of a speed table, one entry a cell in every column.

    Logarithms are binary. Codes are numbers of names; they compare cells of one ``of`` only.
    """

    model: IntArray
    """code of the model"""
    batch: FloatArray
    """logarithm of the batch size, less the mean of its model"""
    accelerator: IntArray
    """code of the accelerator"""
    features: FloatArray
    """cells × figures of the accelerator's data sheet, less their mean; 0 without a data sheet"""
    guess: FloatArray
    """natural logarithm of the guessed relative speed of the accelerator"""
    gang: FloatArray
    """logarithm of the gang"""
    link: IntArray
    """ONE_DEVICE, CONSOLIDATED or SPREAD"""
    partner: IntArray
    """code of the partner's model; −1: alone"""
    partner_batch: FloatArray
    """as ``batch``, of the partner"""

    def __len__(self) -> int:
        return len(self.model)

    def take(self, rows: IntArray) -> "Cells":
        """Return the cells of these rows."""
        return Cells(*(getattr(self, name)[rows] for name in self.__slots__))

    @classmethod
    def of(cls, keys: Sequence[SpeedKey], sheets: Mapping[str, DataSheet]) -> "Cells":
        """Return the columns of these keys; ``sheets`` are the known data sheets by name."""
        own = [workload_name(key.workload) for key in keys]
        others = [None if key.partner is None else workload_name(key.partner) for key in keys]
        names = {*own, *(other for other in others if other is not None)}
        models = {name: code for code, name in enumerate(sorted({n.model for n in names}))}
        batch = _centred_batches(names)
        accelerators = sorted({key.accelerator for key in keys})
        code = {name: number for number, name in enumerate(accelerators)}
        column = np.array([code[key.accelerator] for key in keys], dtype=np.int64)
        features, guess = _sheet_columns([find_sheet(name, sheets) for name in accelerators])
        return cls(
            model=np.array([models[name.model] for name in own], dtype=np.int64),
            batch=np.array([batch[name] for name in own], dtype=float),
            accelerator=column,
            features=features[column],
            guess=guess[column],
            gang=np.log2(np.array([key.gang for key in keys], dtype=float)),
            link=np.array([_link(key) for key in keys], dtype=np.int64),
            partner=np.array(
                [-1 if o is None else models[o.model] for o in others], dtype=np.int64
            ),
            partner_batch=np.array([0.0 if o is None else batch[o] for o in others], dtype=float),
        )


def _link(key: SpeedKey) -> int:
    """Return the link of a gang; one device has no link, whatever its placement."""
    if key.gang == 1:
        return ONE_DEVICE
    return SPREAD if key.placement == "spread" else CONSOLIDATED


def _centred_batches(names: set[WorkloadName]) -> dict[WorkloadName, float]:
    """Return workload → logarithm of its batch size, less the mean of its model's sizes."""
    sizes: dict[str, list[float]] = {}
    for name in sorted(names, key=lambda name: (name.model, name.batch_size or 0)):
        if name.batch_size is not None:
            sizes.setdefault(name.model, []).append(float(np.log2(name.batch_size)))
    return {
        name: 0.0
        if name.batch_size is None
        else float(np.log2(name.batch_size) - np.mean(sizes[name.model]))
        for name in names
    }


def _sheet_columns(sheets: Sequence[DataSheet | None]) -> tuple[FloatArray, FloatArray]:
    """Return accelerators × figures and accelerators → guessed log speed, both less their mean."""
    known = [sheet for sheet in sheets if sheet is not None]
    features = np.zeros((len(sheets), 3))
    guess = np.zeros(len(sheets))
    if known:
        middle = np.mean([sheet.features for sheet in known], axis=0)
        level = float(np.mean([log_device_speed(sheet) for sheet in known]))
        for row, sheet in enumerate(sheets):
            if sheet is not None:
                features[row] = sheet.features - middle
                guess[row] = log_device_speed(sheet) - level
    return features, guess
