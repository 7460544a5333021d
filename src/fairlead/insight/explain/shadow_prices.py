"""Shadow prices of devices, and the gains from small changes that they predict.

Prices p certify the lowest level t: reaching it costs all participants together exactly the value
of all devices, Σ_k C_k(t; p) = capacity · p. So one more device of price p_j raises the level by
p_j / Σ_k C'_k. The value of a participant at the level changes with its weight by
d ln V_k / d ln w_k = 1 - C'_k / Σ C'. Both hold while the same constraints bind and the
normalisation of speeds does not change.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.insight.bundles import ReceivedShares, participants_of, received_shares
from fairlead.insight.explain.changes import Change
from fairlead.insight.explain.subject import Subject, devices_of
from fairlead.insight.participants import Participants
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray
from fairlead.model.snapshot import Snapshot

_CLOSE = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Prices of a certificate, related to one job or tenant."""

    price: FloatArray
    """accelerators → price of one device all the time"""
    part: float
    """fraction of the value of all devices that the subject holds"""
    per_speed: tuple[float | None, ...]
    """accelerators → price of one unit of speed (steps/s of a job, normalised speed of a tenant);
    None if it cannot run there"""
    gain_per_device: FloatArray | None
    """accelerators → marginal relative gain of the subject per additional device; None if the
    prices do not apply"""
    gain_per_weight: float | None
    """marginal relative gain of the subject per relative increase of its weight"""

    @classmethod
    def of(cls, snap: Snapshot, allocation: Allocation, subject: Subject) -> "Prices | None":
        """Return the prices of an allocation; None without a certificate or if all are 0."""
        if allocation.prove is None:
            return None
        price = np.asarray(allocation.prove().prices, dtype=float)
        worth = float((price * snap.devices).sum())
        if len(price) != len(snap.capacity) or not np.isfinite(price).all() or worth <= 0:
            return None
        paid = float((price * devices_of(subject, snap, allocation)).sum())
        per_device, per_weight = _predicted_slopes(snap, allocation, subject, price)
        return cls(
            price,
            paid / worth,
            _per_speed(snap, allocation, subject, price),
            per_device,
            per_weight,
        )

    def predicted_gain(self, change: Change) -> float | None:
        """Return the relative gain that the prices predict for a change; None if they do not."""
        if change.kind == "device" and self.gain_per_device is not None:
            return float(self.gain_per_device[change.accelerator])
        return self.gain_per_weight if change.kind == "weight" else None


def _per_speed(
    snap: Snapshot, allocation: Allocation, subject: Subject, price: FloatArray
) -> tuple[float | None, ...]:
    """Return accelerators → price of one unit of speed."""
    if allocation.rows == "jobs" and not subject.is_tenant:
        row = subject.rows[0]
        speed = snap.speed[row] / snap.gang_on[row]
    else:
        participants = participants_of(snap, allocation, "tenants")
        parts = participants.parts(participants.names.index(subject.name))
        speed = (participants.gain[parts] / participants.size[parts]).mean(axis=0)
    return tuple(
        float(p / s) if s > 0 else None for p, s in zip(price.tolist(), speed, strict=True)
    )


def _predicted_slopes(
    snap: Snapshot, allocation: Allocation, subject: Subject, price: FloatArray
) -> tuple[FloatArray | None, float | None]:
    """Return the gains per device and per weight; None if subject or policy follow no level."""
    participants = participants_of(snap, allocation, None)
    if subject.name not in participants.names or subject.is_tenant != (
        participants.by == "tenants"
    ):
        return None, None
    received = received_shares(snap, allocation, participants)
    level = received.value / participants.weight
    least = float(level.min())
    at = np.flatnonzero(level <= least * (1 + 1e-6))
    index = participants.names.index(subject.name)
    if index not in at or not _is_level(allocation.objective, least, participants):
        return None, None
    cost, slope = _costs(participants, received, price)
    paid = (price * received.devices).sum(axis=1)
    if np.abs(paid - cost)[at].max() > _CLOSE * paid.sum():
        return None, None  # the level could cost less: other constraints have prices too
    slopes = (participants.weight * slope)[at]
    total = float(slopes.sum())
    if not 0 < total < np.inf:
        return None, None
    own = float(participants.weight[index] * slope[index])
    return price / (total * least), 1.0 - own / total


def _is_level(objective: float | None, least: float, participants: Participants) -> bool:
    """Return whether the policy's objective is the lowest level, or the total at that level."""
    if objective is None or least <= 0:
        return False
    of = (least, least * float(participants.weight.sum()))
    return any(abs(objective - value) <= _CLOSE * value for value in of)


def _costs(
    participants: Participants, received: ReceivedShares, price: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return participants → lowest cost of their value, and its slope."""
    if not participants.timed:
        with np.errstate(divide="ignore", invalid="ignore"):
            per_value = np.where(participants.gain > 0, price / participants.gain, np.inf).min(
                axis=1
            )
        portion: Any = 1.0 if participants.portion is None else participants.portion
        slope = np.zeros(len(participants))
        np.add.at(slope, participants.owner, per_value * portion)
        return slope * received.value, slope
    gain, size = np.broadcast_arrays(participants.gain, participants.size)
    rows, row_of = np.unique(
        np.column_stack([gain, size, received.value]), axis=0, return_inverse=True
    )
    # Jobs of one class have the same hull: thousands of jobs have few.
    n = gain.shape[1]
    each = np.array([_hull(row[:n], row[n:-1] * price, float(row[-1])) for row in rows])
    cost_and_slope = each[row_of.ravel()]
    return cost_and_slope[:, 0], cost_and_slope[:, 1]


def _hull(gain: FloatArray, cost: FloatArray, value: float) -> tuple[float, float]:
    """Return the lowest cost of a value and its slope there, on the lower convex hull."""
    runs = gain > 0
    x, y = np.append(0.0, gain[runs]), np.append(0.0, cost[runs])
    # Slightly above, so that the slope at a corner is that of the next segment.
    at = min(value * (1 + 1e-7), float(x.max()))
    low, high = x <= at, x >= at
    span = np.maximum(x[high][None] - x[low][:, None], 1e-300)
    rise = (y[high][None] - y[low][:, None]) / span
    total = y[low][:, None] + rise * (at - x[low][:, None])
    best = np.unravel_index(int(total.argmin()), total.shape)
    full = value >= x.max() * (1 - 1e-7)
    return float(total[best]), np.inf if full else float(rise[best])
