"""Quotas: the guaranteed and the maximum devices of tenants on each accelerator.

A guarantee is met whenever the tenant can use it; other tenants borrow the devices that it cannot
use, until the next round after it can. A quota covers a tenant's own jobs and those of all
tenants inside it. A packed device counts half for the tenant of each of its two jobs.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.snapshot import Snapshot
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.tree import TenantTree
from fairlead.policies.base import mean_speed
from fairlead.solve.classes import merge
from fairlead.solve.linear import Columns, LinearProgram, solve_lp
from fairlead.solve.options.problem import ExtraRows

_SLACK = 1e-6
"""relative rounding error allowed for guarantees, which are the solution of a program"""


def any_quota(snap: Snapshot) -> bool:
    """Return whether any tenant has a quota."""
    return any(tenant.guarantee or tenant.limit for tenant in snap.tenants)


@dataclass(frozen=True)
class Quotas:
    """The quotas of a snapshot's tenants, and the parts of guarantees that are usable now."""

    snap: Snapshot

    @cached_property
    def holders(self) -> list[Tenant]:
        """The tenants with a quota."""
        return [t for t in self.snap.tenants if t.guarantee or t.limit]

    @cached_property
    def _holder_index(self) -> list[int]:
        return [i for i, t in enumerate(self.snap.tenants) if t.guarantee or t.limit]

    @cached_property
    def inside(self) -> BoolArray:
        """holders × tenants → whether the tenant is the holder or inside it."""
        return TenantTree(self.snap.tenants).inside(self._holder_index)

    @cached_property
    def guarantee(self) -> FloatArray:
        """holders × accelerators → guaranteed devices, scaled down where too few are up."""
        nominal = self._table("guarantee", 0.0)
        outer = nominal[~self._nested()].sum(axis=0)
        scale = np.minimum(1.0, self.snap.devices / np.maximum(outer, 1e-300))
        guarantee: FloatArray = nominal * scale
        return guarantee

    @cached_property
    def limit(self) -> FloatArray:
        """holders × accelerators → maximum of devices, infinite without a limit."""
        return self._table("limit", np.inf)

    @cached_property
    def usable_guarantee(self) -> FloatArray:
        """holders × accelerators → guaranteed devices that it can use now."""
        return self._usable_guarantee()

    @cached_property
    def guaranteed_speed(self) -> FloatArray:
        """holders → normalised speed on its guaranteed devices alone."""
        return np.array([self._speed_of(row) for row in range(len(self.holders))])

    def reserved(self, tenants: BoolArray) -> FloatArray:
        """Return accelerators → devices reserved for holders among these tenants."""
        among = (self.inside <= tenants).all(axis=1) & ~self._nested()
        reserved: FloatArray = self.usable_guarantee[among].sum(axis=0)
        return reserved

    def within_limits(self, held: FloatArray) -> FloatArray:
        """Return jobs × accelerators → fraction of the devices held that limits allow."""
        covers = self.inside[:, self.snap.tenant].astype(float)
        used = covers @ held
        part = np.minimum(1.0, self.limit / np.maximum(used, 1e-300))
        allowed: FloatArray = np.where(covers[:, :, None] > 0, part[:, None, :], 1.0).min(axis=0)
        return allowed

    def divided(self, devices: FloatArray) -> FloatArray:
        """Return tenants × accelerators → devices brought within the quotas.

        On each accelerator separately, the devices of all tenants are scaled by one factor and
        clipped between the usable guarantee and the limit, so that the total stays the same if
        limits allow. Quotas of tenants around others bound the sum in the same way.
        """
        nested = self._nested()
        low, high = np.zeros_like(devices), np.full_like(devices, np.inf)
        for row, tenant in enumerate(self._holder_index):
            if self.inside[row].sum() == 1:
                low[tenant], high[tenant] = self.usable_guarantee[row], self.limit[row]
        divided = _scaled(devices, low, high, devices.sum(axis=0))
        for row in (~nested & (self.inside.sum(axis=1) > 1)).nonzero()[0].tolist():
            inner = self.inside[row]
            whole = np.clip(
                divided[inner].sum(axis=0), self.usable_guarantee[row], self.limit[row]
            )
            before = divided[inner].sum(axis=0)
            divided[inner] = _scaled(divided[inner], low[inner], high[inner], whole)
            spare = before - divided[inner].sum(axis=0)
            rest = divided[~inner].sum(axis=0) + spare
            divided[~inner] = _scaled(divided[~inner], low[~inner], high[~inner], rest)
        return divided

    def rows(
        self,
        first: IntArray,
        second: IntArray,
        resource: IntArray,
        size: FloatArray,
        speed_first: FloatArray,
        speed_second: FloatArray,
    ) -> ExtraRows:
        """Return the quotas as constraint rows over options of members in the snapshot.

        ``second`` is -1 for options with one member.
        """
        tenant, normal = self.snap.tenant, self._normalised_per_speed()
        paired = second >= 0
        part = np.where(paired, 0.5, 1.0)
        of_first = self.inside[:, tenant[first]]
        of_second = self.inside[:, tenant[second]] & paired
        held = size * part * (of_first + 1.0 * of_second)
        value = speed_first * normal[first] * of_first + speed_second * normal[second] * of_second
        matrix, lower, upper = [], [], []
        for row, holder in enumerate(self.holders):
            by_speed = holder.guarantee_in == "speed"
            for accelerator in range(len(self.snap.capacity)):
                low = 0.0 if by_speed else self.usable_guarantee[row, accelerator] * (1 - _SLACK)
                if low <= 0 and not np.isfinite(self.limit[row, accelerator]):
                    continue
                matrix.append(np.where(resource == accelerator, held[row], 0.0))
                lower.append(low)
                upper.append(self.limit[row, accelerator])
            if by_speed and self.guaranteed_speed[row] > 0:
                matrix.append(value[row])
                lower.append(self.guaranteed_speed[row] * (1 - _SLACK))
                upper.append(np.inf)
        dense = np.array(matrix).reshape(len(matrix), len(first))
        return ExtraRows(Columns.dense(dense), np.array(lower), np.array(upper))

    def _table(self, name: str, absent: float) -> FloatArray:
        accelerators = self.snap.cluster.accelerators
        listed = [
            [getattr(t, name).get(accelerator, absent) for accelerator in accelerators]
            for t in self.holders
        ]
        return np.array(listed, dtype=np.float64).reshape(len(listed), len(accelerators))

    def _nested(self) -> BoolArray:
        """Return holders → whether it is inside another holder."""
        nested: BoolArray = self.inside[:, self._holder_index].sum(axis=0) > 1
        return nested

    def _normalised_per_speed(self) -> FloatArray:
        """Return jobs → normalised speed per unit of speed, normalised as in max-min."""
        normal = mean_speed(self.snap.gang_speed, self.snap.capacity)
        scale: FloatArray = self.snap.gang / np.where(normal > 0, normal, 1.0)
        return scale

    def _usable_guarantee(self) -> FloatArray:
        """Maximise Σ z over holders and accelerators with z ≤ guarantee, z ≤ devices held.

        Devices held by a tenant inside another count for both.
        """
        snap, runs = self.snap, self._runs()
        holders, width = len(self.holders), len(snap.capacity)
        classes = merge(runs.astype(float), snap.gang_on.astype(float), snap.tenant.astype(float))
        first, n = classes.representative, len(classes.count)
        gang = snap.gang_on[first].astype(float)
        covers = self.inside[:, snap.tenant[first]]
        time = np.arange(n * width).reshape(n, width)
        z = n * width + np.arange(holders * width)
        matrix = np.zeros((n + width + holders * width, n * width + holders * width))
        for k in range(n):
            matrix[k, time[k]] = 1.0
            matrix[n + np.arange(width), time[k]] = gang[k]
            for r in covers[:, k].nonzero()[0].tolist():
                matrix[n + width + r * width + np.arange(width), time[k]] = gang[k]
        matrix[n + width + np.arange(holders * width), z] = -1.0
        own = holders * width
        solution = solve_lp(
            LinearProgram(
                cost=np.concatenate([np.zeros(n * width), -np.ones(own)]),
                matrix=Columns.dense(matrix),
                row_lower=np.concatenate([np.full(n + width, -np.inf), np.zeros(own)]),
                row_upper=np.concatenate([classes.count, snap.devices, np.full(own, np.inf)]),
                lower=np.zeros(len(matrix[0])),
                upper=np.concatenate(
                    [np.where(runs[first], np.inf, 0.0).ravel(), self.guarantee.ravel()]
                ),
            )
        )
        return np.maximum(solution.value[n * width :].reshape(holders, width), 0.0)

    def _speed_of(self, row: int) -> float:
        """Return the greatest normalised speed of a holder on its guaranteed devices alone."""
        snap, width = self.snap, len(self.snap.capacity)
        rows = self.inside[row, snap.tenant].nonzero()[0]
        value = np.where(self._runs(), snap.speed * self._normalised_per_speed()[:, None], 0.0)[
            rows
        ]
        gang = np.broadcast_to(snap.gang_on[rows].astype(float), value.shape)
        n = len(rows)
        if not n:
            return 0.0
        matrix = np.zeros((n + width, n * width))
        k, j = (a.ravel() for a in np.indices((n, width)))
        matrix[k, np.arange(n * width)] = 1.0
        matrix[n + j, np.arange(n * width)] = gang[k, j]
        solution = solve_lp(
            LinearProgram(
                cost=-value.ravel(),
                matrix=Columns.dense(matrix),
                row_lower=np.full(n + width, -np.inf),
                row_upper=np.concatenate([np.ones(n), self.guarantee[row]]),
                lower=np.zeros(n * width),
                upper=np.where(value.ravel() > 0, np.inf, 0.0),
            )
        )
        return -solution.objective

    def _runs(self) -> BoolArray:
        """Return jobs × accelerators → whether it can run there."""
        snap = self.snap
        runs: BoolArray = (snap.speed > 0) & (snap.gang_on <= snap.capacity)
        return runs


def _scaled(held: FloatArray, low: FloatArray, high: FloatArray, whole: FloatArray) -> FloatArray:
    """Return rows × columns, each column scaled and clipped so that it sums to ``whole``.

    The factor is found by bisection; a row without devices and guarantee stays at 0.
    """
    least, greatest = np.zeros(held.shape[1]), np.full(held.shape[1], 1.0)
    for _ in range(60):
        short = np.clip(held * greatest, low, high).sum(axis=0) < whole
        greatest = np.where(short, 2 * greatest, greatest)
    for _ in range(100):
        middle = (least + greatest) / 2
        short = np.clip(held * middle, low, high).sum(axis=0) < whole
        least, greatest = np.where(short, middle, least), np.where(short, greatest, middle)
    scaled: FloatArray = np.clip(held * greatest, low, high)
    return scaled


class QuotaCapacity:
    """Free devices within all quotas, for policies that place one gang at a time."""

    def __init__(self, snap: Snapshot) -> None:
        self.free: list[float] = snap.devices.tolist()
        self._quotas = Quotas(snap) if any_quota(snap) else None
        if self._quotas is not None:
            self._tenant = snap.tenant.tolist()
            self._used = np.zeros_like(self._quotas.usable_guarantee)

    @property
    def limited(self) -> bool:
        """Whether there are quotas at all."""
        return self._quotas is not None

    def fits(self, row: int, accelerator: int, gang: int) -> bool:
        """Return whether a job may take a gang of devices of an accelerator."""
        if self.free[accelerator] < gang:
            return False
        if self._quotas is None:
            return True
        covers = self._quotas.inside[:, self._tenant[row]]
        used, kept = self._used[:, accelerator], self._quotas.usable_guarantee[:, accelerator]
        owed = np.maximum(kept - used, 0.0)[~covers].sum()
        within = (used + gang <= self._quotas.limit[:, accelerator] + _SLACK) | ~covers
        return bool(within.all()) and self.free[accelerator] - owed >= gang - _SLACK

    def take(self, row: int, accelerator: int, gang: int) -> None:
        """Count the devices as taken by a job."""
        self.free[accelerator] -= gang
        if self._quotas is not None:
            self._used[self._quotas.inside[:, self._tenant[row]], accelerator] += gang
