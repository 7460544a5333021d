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


def as_json(samples: Sequence[ShareSample]) -> dict[str, Any]:
    """Return samples as one column of entitled and one of received shares per tenant."""
    tenants = dict.fromkeys(tenant for sample in samples for tenant in sample.shares)
    none = Share(0.0, 0.0)
    return {
        "at": [round(sample.at, 3) for sample in samples],
        "tenants": {
            tenant: [
                [round(sample.shares.get(tenant, none)[column], 5) for sample in samples]
                for column in (0, 1)
            ]
            for tenant in tenants
        },
    }


def from_json(saved: Mapping[str, Any]) -> list[ShareSample]:
    """Return the samples that ``as_json`` returned."""
    times = [float(at) for at in saved["at"]]
    tenants = saved["tenants"].items()
    return [
        ShareSample(
            at,
            {
                tenant: Share(float(entitled[i]), float(received[i]))
                for tenant, (entitled, received) in tenants
                if entitled[i] or received[i]
            },
        )
        for i, at in enumerate(times)
    ]


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
    """steps × tenants"""


def series(
    samples: Sequence[ShareSample],
    tenants: Sequence[str],
    *,
    begin: float,
    end: float,
    columns: int,
    half_life_s: float,
) -> ShareSeries:
    """Return the shares from ``begin`` to ``end``; a sample counts until the next one.

    Samples before ``begin`` count in the averages only.
    """
    number = {tenant: i for i, tenant in enumerate(tenants)}
    values = np.zeros((2, len(samples), len(tenants)))
    for i, sample in enumerate(samples):
        for tenant, share in sample.shares.items():
            if tenant in number:
                values[:, i, number[tenant]] = share
    at = np.array([sample.at for sample in samples], dtype=np.float64)
    until = np.minimum(np.append(at[1:], end)[: len(at)], at + MAX_GAP_S)
    until = np.maximum(until, at)
    edges = np.linspace(begin, end, columns + 1)
    entitled, received = (_Steps(at, until, each) for each in values)
    return ShareSeries(
        _means(entitled, edges),
        _means(received, edges),
        _averages(entitled, edges, half_life_s),
        _averages(received, edges, half_life_s),
    )


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
    at, until = steps.at.tolist(), steps.until.tolist()
    total, weight = np.zeros(steps.values.shape[1]), 0.0
    now, step = at[0] if at else 0.0, 0
    for column, edge in enumerate(edges[1:].tolist()):
        while step < len(at) and at[step] < edge:
            upper = min(until[step], edge)
            fade = 0.5 ** (max(upper - now, 0.0) / half_life_s)
            fresh = 1.0 - 0.5 ** (max(upper - max(at[step], now), 0.0) / half_life_s)
            total, weight = total * fade + steps.values[step] * fresh, weight * fade + fresh
            now = max(now, upper)
            if until[step] > edge:
                break
            step += 1
        if weight > 0:
            averages[column] = total / weight
    return averages
