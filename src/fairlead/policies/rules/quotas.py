"""Quotas: what tenants are guaranteed of each accelerator, and what they may have at most.

A guarantee is kept whenever the tenant can use it; what it cannot use others borrow, and give
back at the next round after it can. A quota covers a tenant's own jobs and those of all tenants
inside it. A packed device counts half for each of the two jobs' tenants.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.job import Tenant
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import mean_speed
from fairlead.solve import Columns, ExtraRows, LinearProgram, merge, solve_lp

_SLACK = 1e-6
"""guarantees are kept up to this, relatively: they were found by a program with rounding"""


def any_quota(snap: Snapshot) -> bool:
    """Tell whether any tenant has a quota."""
    return any(tenant.guarantee or tenant.limit for tenant in snap.tenants)


@dataclass(frozen=True)
class Quotas:
    """The quotas of a snapshot's tenants, and what can be kept of the guarantees now."""

    snap: Snapshot

    @cached_property
    def holders(self) -> list[Tenant]:
        """The tenants with a quota."""
        return [t for t in self.snap.tenants if t.guarantee or t.limit]

    @cached_property
    def inside(self) -> BoolArray:
        """holders × tenants → is the tenant, or is inside it."""
        tenants = self.snap.tenants
        index = {tenant.id: i for i, tenant in enumerate(tenants)}
        found = np.zeros((len(self.holders), len(tenants)), dtype=bool)
        for row, holder in enumerate(self.holders):
            for i, tenant in enumerate(tenants):
                at: str | None = tenant.id
                while at is not None and at != holder.id:
                    at = tenants[index[at]].parent if at in index else None
                found[row, i] = at == holder.id
        return found

    @cached_property
    def guarantee(self) -> FloatArray:
        """holders × accelerators → devices guaranteed; fewer for all if too few are there."""
        wanted = self._table("guarantee", 0.0)
        outer = wanted[~self._nested()].sum(axis=0)
        fits = np.minimum(1.0, self.snap.devices / np.maximum(outer, 1e-300))
        found: FloatArray = wanted * fits
        return found

    @cached_property
    def limit(self) -> FloatArray:
        """holders × accelerators → devices it may have at most, infinite without a limit."""
        return self._table("limit", np.inf)

    @cached_property
    def kept(self) -> FloatArray:
        """holders × accelerators → devices of its guarantee that it can use now."""
        return self._kept()

    @cached_property
    def guaranteed_speed(self) -> FloatArray:
        """holders → normalised speed that its guaranteed devices alone would give it."""
        return np.array([self._speed_of(row) for row in range(len(self.holders))])

    def reserved(self, tenants: BoolArray) -> FloatArray:
        """Return accelerators → devices to be kept for holders that lie among these tenants."""
        mine = (self.inside <= tenants).all(axis=1) & ~self._nested()
        found: FloatArray = self.kept[mine].sum(axis=0)
        return found

    def within_limits(self, held: FloatArray) -> FloatArray:
        """Return jobs × accelerators → the part of the devices held that limits allow."""
        mine = self.inside[:, self.snap.tenant].astype(float)
        used = mine @ held
        part = np.minimum(1.0, self.limit / np.maximum(used, 1e-300))
        allowed: FloatArray = np.where(mine[:, :, None] > 0, part[:, None, :], 1.0).min(axis=0)
        return allowed

    def divided(self, devices: FloatArray) -> FloatArray:
        """Return tenants × accelerators → devices brought within the quotas.

        On each accelerator by itself, what everyone has is scaled by one factor and held between
        what can be kept of its guarantee and its limit, so that as many are given out as before,
        if limits allow it. Quotas of tenants around others bound their sum in the same way.
        """
        own = [list(self.snap.tenants).index(holder) for holder in self.holders]
        nested = self._nested()
        low, high = np.zeros_like(devices), np.full_like(devices, np.inf)
        for row, tenant in enumerate(own):
            if self.inside[row].sum() == 1:
                low[tenant], high[tenant] = self.kept[row], self.limit[row]
        found = _scaled(devices, low, high, devices.sum(axis=0))
        for row in (~nested & (self.inside.sum(axis=1) > 1)).nonzero()[0].tolist():
            mine = self.inside[row]
            whole = np.clip(found[mine].sum(axis=0), self.kept[row], self.limit[row])
            before = found[mine].sum(axis=0)
            found[mine] = _scaled(found[mine], low[mine], high[mine], whole)
            spare = before - found[mine].sum(axis=0)
            rest = found[~mine].sum(axis=0) + spare
            found[~mine] = _scaled(found[~mine], low[~mine], high[~mine], rest)
        return found

    def rows(
        self,
        first: IntArray,
        second: IntArray,
        resource: IntArray,
        size: FloatArray,
        speed_first: FloatArray,
        speed_second: FloatArray,
    ) -> ExtraRows:
        """Return the quotas as rows over options, whose members are rows of the snapshot.

        ``second`` is -1 for options with one member.
        """
        tenant, normal = self.snap.tenant, self._normalised_per_speed()
        paired = second >= 0
        part = np.where(paired, 0.5, 1.0)
        mine = self.inside[:, tenant[first]]
        other = self.inside[:, tenant[second]] & paired
        held = size * part * (mine + 1.0 * other)
        value = speed_first * normal[first] * mine + speed_second * normal[second] * other
        matrix, lower, upper = [], [], []
        for row, holder in enumerate(self.holders):
            by_speed = holder.guarantee_in == "speed"
            for kind in range(len(self.snap.capacity)):
                low = 0.0 if by_speed else self.kept[row, kind] * (1 - _SLACK)
                if low <= 0 and not np.isfinite(self.limit[row, kind]):
                    continue
                matrix.append(np.where(resource == kind, held[row], 0.0))
                lower.append(low)
                upper.append(self.limit[row, kind])
            if by_speed and self.guaranteed_speed[row] > 0:
                matrix.append(value[row])
                lower.append(self.guaranteed_speed[row] * (1 - _SLACK))
                upper.append(np.inf)
        dense = np.array(matrix).reshape(len(matrix), len(first))
        return ExtraRows(Columns.dense(dense), np.array(lower), np.array(upper))

    def _table(self, name: str, absent: float) -> FloatArray:
        kinds = self.snap.cluster.accelerators
        listed = [[getattr(t, name).get(kind, absent) for kind in kinds] for t in self.holders]
        return np.array(listed, dtype=np.float64).reshape(len(listed), len(kinds))

    def _nested(self) -> BoolArray:
        """Return holders → it lies inside another holder, whose quota covers it."""
        index = {tenant.id: i for i, tenant in enumerate(self.snap.tenants)}
        at = [index[holder.id] for holder in self.holders]
        nested: BoolArray = self.inside[:, at].sum(axis=0) > 1
        return nested

    def _normalised_per_speed(self) -> FloatArray:
        """Return jobs → normalised speed per unit of speed, as max-min counts it."""
        normal = mean_speed(self.snap.gang_speed, self.snap.capacity)
        scale: FloatArray = self.snap.gang / np.where(normal > 0, normal, 1.0)
        return scale

    def _kept(self) -> FloatArray:
        """Maximise Σ z over holders and accelerators with z ≤ guarantee, z ≤ devices held.

        Devices held by a tenant inside another count for both.
        """
        snap, runs = self.snap, self._runs()
        holders, kinds = len(self.holders), len(snap.capacity)
        classes = merge(runs.astype(float), snap.gang_on.astype(float), snap.tenant.astype(float))
        first, n = classes.representative, len(classes.count)
        gang = snap.gang_on[first].astype(float)
        mine = self.inside[:, snap.tenant[first]]
        time = np.arange(n * kinds).reshape(n, kinds)
        z = n * kinds + np.arange(holders * kinds)
        matrix = np.zeros((n + kinds + holders * kinds, n * kinds + holders * kinds))
        for k in range(n):
            matrix[k, time[k]] = 1.0
            matrix[n + np.arange(kinds), time[k]] = gang[k]
            for r in mine[:, k].nonzero()[0].tolist():
                matrix[n + kinds + r * kinds + np.arange(kinds), time[k]] = gang[k]
        matrix[n + kinds + np.arange(holders * kinds), z] = -1.0
        own = holders * kinds
        found = solve_lp(
            LinearProgram(
                cost=np.concatenate([np.zeros(n * kinds), -np.ones(own)]),
                matrix=Columns.dense(matrix),
                row_lower=np.concatenate([np.full(n + kinds, -np.inf), np.zeros(own)]),
                row_upper=np.concatenate([classes.count, snap.devices, np.full(own, np.inf)]),
                lower=np.zeros(len(matrix[0])),
                upper=np.concatenate(
                    [np.where(runs[first], np.inf, 0.0).ravel(), self.guarantee.ravel()]
                ),
            )
        )
        return np.maximum(found.value[n * kinds :].reshape(holders, kinds), 0.0)

    def _speed_of(self, row: int) -> float:
        """Return the greatest normalised speed that a holder makes of its guarantee alone."""
        snap, kinds = self.snap, len(self.snap.capacity)
        rows = self.inside[row, snap.tenant].nonzero()[0]
        value = np.where(self._runs(), snap.speed * self._normalised_per_speed()[:, None], 0.0)[
            rows
        ]
        gang = np.broadcast_to(snap.gang_on[rows].astype(float), value.shape)
        n = len(rows)
        if not n:
            return 0.0
        matrix = np.zeros((n + kinds, n * kinds))
        k, j = (a.ravel() for a in np.indices((n, kinds)))
        matrix[k, np.arange(n * kinds)] = 1.0
        matrix[n + j, np.arange(n * kinds)] = gang[k, j]
        found = solve_lp(
            LinearProgram(
                cost=-value.ravel(),
                matrix=Columns.dense(matrix),
                row_lower=np.full(n + kinds, -np.inf),
                row_upper=np.concatenate([np.ones(n), self.guarantee[row]]),
                lower=np.zeros(n * kinds),
                upper=np.where(value.ravel() > 0, np.inf, 0.0),
            )
        )
        return -found.objective

    def _runs(self) -> BoolArray:
        """Return jobs × accelerators → it can run there."""
        snap = self.snap
        runs: BoolArray = (snap.speed > 0) & (snap.gang_on <= snap.capacity)
        return runs


def _scaled(held: FloatArray, low: FloatArray, high: FloatArray, whole: FloatArray) -> FloatArray:
    """Return rows × columns, each column scaled and clipped so that it sums to ``whole``.

    Found by bisection on the factor; who has nothing and is owed nothing stays at nothing.
    """
    least, most = np.zeros(held.shape[1]), np.full(held.shape[1], 1.0)
    for _ in range(60):
        short = np.clip(held * most, low, high).sum(axis=0) < whole
        most = np.where(short, 2 * most, most)
    for _ in range(100):
        middle = (least + most) / 2
        short = np.clip(held * middle, low, high).sum(axis=0) < whole
        least, most = np.where(short, middle, least), np.where(short, most, middle)
    found: FloatArray = np.clip(held * most, low, high)
    return found


class QuotaCapacity:
    """Devices given out one gang at a time, within everyone's quota."""

    def __init__(self, snap: Snapshot) -> None:
        self.free: list[float] = snap.devices.tolist()
        self._quotas = Quotas(snap) if any_quota(snap) else None
        if self._quotas is not None:
            self._tenant = snap.tenant.tolist()
            self._used = np.zeros_like(self._quotas.kept)

    @property
    def limited(self) -> bool:
        """Whether there are quotas at all."""
        return self._quotas is not None

    def has(self, row: int, kind: int, gang: int) -> bool:
        """Tell whether a job may have so many devices of a kind."""
        if self.free[kind] < gang:
            return False
        if self._quotas is None:
            return True
        mine = self._quotas.inside[:, self._tenant[row]]
        used, kept = self._used[:, kind], self._quotas.kept[:, kind]
        owed = np.maximum(kept - used, 0.0)[~mine].sum()
        within = (used + gang <= self._quotas.limit[:, kind] + _SLACK) | ~mine
        return bool(within.all()) and self.free[kind] - owed >= gang - _SLACK

    def take(self, row: int, kind: int, gang: int) -> None:
        """Give the devices."""
        self.free[kind] -= gang
        if self._quotas is not None:
            self._used[self._quotas.inside[:, self._tenant[row]], kind] += gang
