"""Measures the tenants' shares of a cluster while all of them could use more.

Shares are meaningful only under contention: when a tenant runs out of jobs, the others rightly
get its devices. A policy such as max-min does not divide devices but progress: each job's speed
relative to an equal split of all devices. A tenant whose jobs gain much from fast devices gets
fewer of them. Both are shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_TERMINAL_STATES = ("finished", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class TenantReceived:
    """One tenant's fractions of the total during contention."""

    tenant: str
    weight: float
    entitled: float
    progress: float
    devices: float


@dataclass
class ContentionMeter:
    """Accumulates shares from the views of jobs and tenants in the REST API."""

    weights: Mapping[str, float]
    normal_speed: Mapping[str, float]
    """workload → steps per second with an equal share of every device"""
    devices: int
    contended_s: float = 0.0
    """seconds during which all tenants contended"""
    _last: tuple[float, dict[str, float], dict[str, float]] | None = None
    _progress: dict[str, float] = field(default_factory=dict)
    _held: dict[str, float] = field(default_factory=dict)
    _entitled: dict[str, float] = field(default_factory=dict)

    def record(
        self, at: float, jobs: Sequence[Mapping[str, Any]], shares: Iterable[Mapping[str, Any]]
    ) -> None:
        """Record a view; the time since the last one counts if all tenants contended."""
        steps = dict.fromkeys(self.weights, 0.0)
        weight = dict.fromkeys(self.weights, 0.0)
        for job in jobs:
            steps[job["tenant"]] += job["steps_done"] / self.normal_speed[job["workload"]]
            weight[job["tenant"]] += job["weight"] * (job["state"] not in _TERMINAL_STATES)
        held = {row["tenant"]: row["device_hours"] for row in shares}
        if self._last is not None and self._all_contend(jobs):
            before_at, before, held_before = self._last
            self.contended_s += at - before_at
            for tenant in self.weights:
                part = weight[tenant] / sum(weight.values())
                _add(self._entitled, tenant, part * (at - before_at))
                _add(self._progress, tenant, steps[tenant] - before[tenant])
                _add(self._held, tenant, held[tenant] - held_before.get(tenant, 0.0))
        self._last = (at, steps, held) if set(held) == set(self.weights) else None

    def _all_contend(self, jobs: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether every tenant has jobs for its weight's share of the devices."""
        wants = dict.fromkeys(self.weights, 0)
        for job in jobs:
            wants[job["tenant"]] += job["gang"] * (job["state"] not in _TERMINAL_STATES)
        total = sum(self.weights.values())
        return all(
            wants[tenant] >= self.devices * weight / total
            for tenant, weight in self.weights.items()
        )

    def received(self) -> list[TenantReceived]:
        """Return each tenant's fractions; an empty list if there was no contention."""
        if not self.contended_s:
            return []
        return [
            TenantReceived(
                tenant,
                weight,
                self._entitled[tenant] / self.contended_s,
                self._progress[tenant] / (sum(self._progress.values()) or 1.0),
                self._held[tenant] / (sum(self._held.values()) or 1.0),
            )
            for tenant, weight in self.weights.items()
        ]


def _add(counts: dict[str, float], tenant: str, more: float) -> None:
    counts[tenant] = counts.get(tenant, 0.0) + more
