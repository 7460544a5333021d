"""Entitled and received shares of tenants over time, from samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fairlead.model.arrays import FloatArray

MAX_GAP_S = 90.0
"""time for which a sample counts if no other follows: later nothing is known"""


class Share(NamedTuple):
    """Fractions of the cluster."""

    entitled: float
    received: float


class ShareSample(NamedTuple):
    """Shares of the tenants at one time; those of other tenants are 0."""

    at: float
    shares: Mapping[str, Share]


@dataclass(frozen=True, slots=True, eq=False)
class ShareColumns:
    """Samples as columns, which take a tenth of the memory."""

    at: FloatArray
    tenants: Sequence[str]
    shares: FloatArray
    """tenants × entitled and received × samples"""

    def __len__(self) -> int:
        return len(self.at)

    @classmethod
    def of(cls, samples: Sequence[ShareSample]) -> "ShareColumns":
        """Return samples as columns."""
        tenants = [*dict.fromkeys(tenant for sample in samples for tenant in sample.shares)]
        number = {tenant: i for i, tenant in enumerate(tenants)}
        shares = np.zeros((len(tenants), 2, len(samples)))
        for i, sample in enumerate(samples):
            for tenant, share in sample.shares.items():
                shares[number[tenant], :, i] = share
        return cls(np.array([sample.at for sample in samples]), tenants, shares)

    def rows(self) -> list[ShareSample]:
        """Return the samples one by one, without tenants whose shares are 0."""
        return [
            ShareSample(
                at,
                {
                    tenant: Share(*share)
                    for tenant, share in zip(self.tenants, shares, strict=True)
                    if any(share)
                },
            )
            for at, shares in zip(
                self.at.tolist(), self.shares.transpose(2, 0, 1).tolist(), strict=True
            )
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the columns for ``from_json``, rounded."""
        shares = self.shares.round(5).tolist()
        return {
            "at": self.at.round(3).tolist(),
            "tenants": dict(zip(self.tenants, shares, strict=True)),
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "ShareColumns":
        """Return the columns that ``as_json`` returned."""
        at, tenants = np.array(saved["at"], dtype=np.float64), saved["tenants"]
        shares = np.array([*tenants.values()], dtype=np.float64)
        return cls(at, [*tenants], shares.reshape(len(tenants), 2, len(at)))


@dataclass(frozen=True, slots=True, eq=False)
class ShareSeries:
    """Shares as columns of time × tenants; NaN where nothing is known."""

    entitled: FloatArray
    received: FloatArray
    entitled_average: FloatArray
    """average at the end of the column in which older shares count less, by half-lives"""
    received_average: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """Values that are known from one time to another, the times in their order."""

    at: FloatArray
    until: FloatArray
    values: FloatArray
    """steps × tenants, their entitled shares before all received ones"""


def series(
    parts: Sequence[ShareColumns],
    tenants: Sequence[str],
    *,
    begin: float,
    end: float,
    columns: int,
    half_life_s: float,
) -> ShareSeries:
    """Return the shares from ``begin`` to ``end``; a sample counts until the next one.

    Samples before ``begin`` count in the averages only, those after ``end`` not at all.
    """
    steps = _steps(parts, tenants, end)
    edges = np.linspace(begin, end, columns + 1)
    means, averages = _means(steps, edges), _averages(steps, edges, half_life_s)
    count = len(tenants)
    return ShareSeries(
        means[:, :count], means[:, count:], averages[:, :count], averages[:, count:]
    )


def _steps(parts: Sequence[ShareColumns], tenants: Sequence[str], end: float) -> _Steps:
    """Return the samples of some tenants before ``end``."""
    number = {tenant: i for i, tenant in enumerate(tenants)}
    values = np.zeros((sum(map(len, parts)), 2, len(tenants)))
    first = 0
    for part in parts:
        rows = [i for i, tenant in enumerate(part.tenants) if tenant in number]
        columns = [number[part.tenants[i]] for i in rows]
        values[first : first + len(part), :, columns] = part.shares[rows].transpose(2, 1, 0)
        first += len(part)
    at = np.concatenate([np.zeros(0), *(part.at for part in parts)])
    count = int(np.searchsorted(at, end))
    at = at[:count]
    until = np.minimum(np.append(at[1:], end)[:count], at + MAX_GAP_S)
    return _Steps(at, np.maximum(until, at), values[:count].reshape(count, 2 * len(tenants)))


def _means(steps: _Steps, edges: FloatArray) -> FloatArray:
    """Return columns × tenants → mean over the time for which the values are known."""
    if not len(steps.at):
        return np.full((len(edges) - 1, steps.values.shape[1]), np.nan)
    known_s = np.diff(_integral(steps, np.ones((len(steps.at), 1)), edges), axis=0)
    sums = np.diff(_integral(steps, steps.values, edges), axis=0)
    means: FloatArray = np.where(known_s > 0, sums / np.where(known_s > 0, known_s, 1.0), np.nan)
    return means


def _integral(steps: _Steps, values: FloatArray, edges: FloatArray) -> FloatArray:
    """Return times × tenants → integral of the values up to each time."""
    length_s = (steps.until - steps.at)[:, None]
    # Up to a time, the steps before the last have counted whole, the last one in part.
    none = np.zeros((1, values.shape[1]))
    whole = np.concatenate([none, np.cumsum(values * length_s, axis=0)])
    begun = np.searchsorted(steps.at, edges, side="right")
    last = np.maximum(begun - 1, 0)
    part_s = np.clip((edges - steps.at[last])[:, None], 0.0, length_s[last])
    integral: FloatArray = np.where((begun > 0)[:, None], whole[last] + values[last] * part_s, 0.0)
    return integral


def _averages(steps: _Steps, edges: FloatArray, half_life_s: float) -> FloatArray:
    """Return columns × tenants → average at their end, values halved with every half-life."""
    averages = np.full((len(edges) - 1, steps.values.shape[1]), np.nan)
    total, weight = np.zeros(steps.values.shape[1]), 0.0
    begun = np.searchsorted(steps.at, edges[1:]).tolist()
    first, reached = 0, steps.at.item(0) if begun[-1] else 0.0
    for column, (edge, end) in enumerate(zip(edges[1:].tolist(), begun, strict=True)):
        if end > first:
            upper = np.minimum(steps.until[first:end], edge)
            lower = np.maximum(steps.at[first:end], reached)
            now = max(reached, upper.max().item())
            # The weight of a step: of all time since its begin less all time since its end.
            parts = 0.5 ** ((now - upper) / half_life_s) - 0.5 ** ((now - lower) / half_life_s)
            parts = np.maximum(parts, 0.0)
            fade = 0.5 ** ((now - reached) / half_life_s)
            total = total * fade + parts @ steps.values[first:end]
            weight, reached = weight * fade + parts.sum().item(), now
            # The last step may continue in the next column.
            first = end - (steps.until[end - 1] > edge)
        if weight > 0:
            averages[column] = total / weight
    return averages
