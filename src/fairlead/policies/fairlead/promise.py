"""The promised finish time of a job: that on its part of the cluster, split by weight."""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.snapshot import Snapshot
from fairlead.policies.fairlead.weights import fair_weights
from fairlead.policies.isolated import equal_split


class Promise(NamedTuple):
    """Weight of promised finish times; slack is relative to the promised time."""

    near: float
    """slack from which on a promise counts"""
    least: float
    """slack below which urgency grows no further: a job at its promise counts near / least"""


IN_PROGRAM = Promise(near=0.5, least=0.25)
"""for shares, which preempt others: at most twice"""
FOR_IDLE_DEVICES = Promise(near=0.25, least=0.05)
"""for devices that nobody else claims: at most five times"""


def urgency(snap: Snapshot, speed: FloatArray, left_s: FloatArray, promise: Promise) -> FloatArray:
    """Return jobs → factor on its value: 1 for much slack, more as the promise comes near.

    Let ρ be the earliest possible finish time over the promised one, both since submission:

        ρ = (elapsed + time left) / (isolated elapsed + time left / isolated level),

    where the isolated level is the speed on an equal split of the cluster, relative to the
    fastest accelerator; a job of twice the mean weight is promised twice that speed, at most all
    of the fastest accelerator. While ρ < 1 the promise can be kept. The urgency is 1 up to
    ρ = 1 - near, then grows as 1 / (1 - ρ) up to ρ = 1 - least, and from ρ = 1 on in proportion
    to ρ, without bound: no job waits forever.
    """
    fastest = speed.max(axis=1)
    safe = np.where(fastest > 0, fastest, 1.0)
    split = equal_split(snap, snap.capacity.astype(np.float64))
    isolated = (speed * split).sum(axis=1) / safe
    weight = fair_weights(snap)
    part = weight / weight.mean()
    level = np.where(isolated > 0, np.minimum(isolated * part, 1.0), 1.0)
    promised_s = snap.isolated_elapsed_s / part + left_s / level
    ratio = (snap.elapsed_s + left_s) / promised_s
    near = np.maximum(1.0, promise.near / np.maximum(1.0 - ratio, promise.least))
    factor: FloatArray = near * np.maximum(ratio, 1.0)
    return factor
