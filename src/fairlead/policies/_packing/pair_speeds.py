"""Speeds that decide which packed pairs can pay."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class SinglePairs:
    """Speeds that decide which pairs of jobs of one device pay."""

    name: IntArray
    """classes → row of the block"""
    block: FloatArray
    """workloads × partners × accelerators → steps per second of the workload"""
    alone: FloatArray
    """classes × accelerators → steps per second alone"""


def pays_off(
    own: FloatArray, other: FloatArray, alone: FloatArray, others: FloatArray
) -> BoolArray:
    """Return pairs × accelerators → whether both run together, faster than by taking turns."""
    runs = (own > 0) & (other > 0) & (alone > 0) & (others > 0)
    relative = own / np.where(runs, alone, 1.0) + other / np.where(runs, others, 1.0)
    pays: BoolArray = runs & (relative > 1.0)
    return pays
