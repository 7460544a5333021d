"""What devices are worth, and what that foretells of small changes.

Prices p prove the least level t: reaching it costs the participants together just what all
devices are worth, Σ_k C_k(t; p) = capacity · p. So one more device of price p_j lifts it by
p_j / Σ_k C'_k, and who stands at it loses with more weight what the others then pay less for:
d ln V_k / d ln w_k = 1 - C'_k / Σ C'. Both hold as long as the same constraints bind and what
speeds are normalised by does not move.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.insight.bundles import Received, participants_of, received
from fairlead.insight.explain.changes import Change
from fairlead.insight.explain.subject import Subject, devices_of
from fairlead.insight.participants import Participants
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray
from fairlead.model.snapshot import Snapshot

_CLOSE = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """The prices of a certificate as one job or tenant meets them."""

    price: FloatArray
    """accelerators → price of one device for all the time"""
    part: float
    """part of the worth of all devices that the subject holds"""
    per_speed: tuple[float | None, ...]
    """accelerators → price of one unit of speed (steps/s of a job, normalised of a tenant);
    None where it cannot run"""
    lift: FloatArray | None
    """accelerators → relative gain of the subject from one more device, for small parts of it;
    None where the prices do not tell"""
    stretch: float | None
    """relative gain of the subject per relative rise of its weight, for small rises"""

    @classmethod
    def of(cls, snap: Snapshot, allocation: Allocation, subject: Subject) -> "Prices | None":
        """Return the prices of an allocation, None if it has no certificate or they are all 0."""
        if allocation.prove is None:
            return None
        price = np.asarray(allocation.prove().prices, dtype=float)
        worth = float((price * snap.devices).sum())
        if len(price) != len(snap.capacity) or not np.isfinite(price).all() or worth <= 0:
            return None
        paid = float((price * devices_of(subject, snap, allocation)).sum())
        lift, stretch = _foretold(snap, allocation, subject, price)
        return cls(
            price, paid / worth, _per_speed(snap, allocation, subject, price), lift, stretch
        )

    def foretell(self, change: Change) -> float | None:
        """Return the relative gain that the prices foretell for a change, None if they do not."""
        if change.kind == "device" and self.lift is not None:
            return float(self.lift[change.accelerator])
        return self.stretch if change.kind == "weight" else None


def _per_speed(
    snap: Snapshot, allocation: Allocation, subject: Subject, price: FloatArray
) -> tuple[float | None, ...]:
    """Return accelerators → what a unit of speed costs there."""
    if allocation.rows == "jobs" and not subject.is_tenant:
        row = subject.rows[0]
        speed = snap.speed[row] / snap.gang_on[row]
    else:
        parties = participants_of(snap, allocation, "tenants")
        mine = parties.parts(parties.names.index(subject.name))
        speed = (parties.gain[mine] / parties.size[mine]).mean(axis=0)
    return tuple(
        float(p / s) if s > 0 else None for p, s in zip(price.tolist(), speed, strict=True)
    )


def _foretold(
    snap: Snapshot, allocation: Allocation, subject: Subject, price: FloatArray
) -> tuple[FloatArray | None, float | None]:
    """Return lift and stretch, None where the subject or the policy does not follow a level."""
    parties = participants_of(snap, allocation, None)
    if subject.name not in parties.names or subject.is_tenant != (parties.by == "tenants"):
        return None, None
    got = received(snap, allocation, parties)
    level = got.value / parties.weight
    least = float(level.min())
    at = np.flatnonzero(level <= least * (1 + 1e-6))
    me = parties.names.index(subject.name)
    if me not in at or not _is_level(allocation.objective, least, parties):
        return None, None
    cost, slope = _costs(parties, got, price)
    paid = (price * got.devices).sum(axis=1)
    if np.abs(paid - cost)[at].max() > _CLOSE * paid.sum():
        return None, None  # somebody could have its level for less: other constraints have prices
    slopes = (parties.weight * slope)[at]
    total = float(slopes.sum())
    if not 0 < total < np.inf:
        return None, None
    mine = float(parties.weight[me] * slope[me])
    return price / (total * least), 1.0 - mine / total


def _is_level(objective: float | None, least: float, parties: Participants) -> bool:
    """Tell whether what the policy maximises is the least level, or all of it at that level."""
    if objective is None or least <= 0:
        return False
    of = (least, least * float(parties.weight.sum()))
    return any(abs(objective - value) <= _CLOSE * value for value in of)


def _costs(
    parties: Participants, got: Received, price: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return participants → least cost of what they have, and the cost of the next bit of it."""
    if not parties.timed:
        with np.errstate(divide="ignore", invalid="ignore"):
            per_value = np.where(parties.gain > 0, price / parties.gain, np.inf).min(axis=1)
        portion: Any = 1.0 if parties.portion is None else parties.portion
        slope = np.zeros(len(parties))
        np.add.at(slope, parties.owner, per_value * portion)
        return slope * got.value, slope
    found = np.array(
        [
            _hull(gain, size * price, value)
            for gain, size, value in zip(parties.gain, parties.size, got.value, strict=True)
        ]
    )
    return found[:, 0], found[:, 1]


def _hull(gain: FloatArray, cost: FloatArray, value: float) -> tuple[float, float]:
    """Return the least cost of a value and its slope there, mixing two ways to spend time."""
    runs = gain > 0
    x, y = np.append(0.0, gain[runs]), np.append(0.0, cost[runs])
    # A hair above, so that at a corner the slope is that of what comes next.
    at = min(value * (1 + 1e-7), float(x.max()))
    low, high = x <= at, x >= at
    span = np.maximum(x[high][None] - x[low][:, None], 1e-300)
    rise = (y[high][None] - y[low][:, None]) / span
    total = y[low][:, None] + rise * (at - x[low][:, None])
    best = np.unravel_index(int(total.argmin()), total.shape)
    full = value >= x.max() * (1 - 1e-7)
    return float(total[best]), np.inf if full else float(rise[best])
