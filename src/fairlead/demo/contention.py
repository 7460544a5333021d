"""What tenants had of a cluster while all of them could have used more.

Shares mean something only while somebody else wants the devices: when a tenant runs out of jobs
the others rightly get what it leaves. What a policy such as max-min divides is progress, of each
job against an equal split of all devices, not devices: who has jobs that gain much from a fast
device is given fewer of them. Both are shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OVER = ("finished", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Received:
    """One tenant, in parts of what all had while they contended."""

    tenant: str
    weight: float
    entitled: float
    progress: float
    devices: float


@dataclass
class Contention:
    """Watches jobs from outside, as a user sees them."""

    weights: Mapping[str, float]
    normal_speed: Mapping[str, float]
    """workload → steps per second with an equal share of every device"""
    devices: int
    lasted_s: float = 0.0
    _last: tuple[float, dict[str, float], dict[str, float]] | None = None
    _progress: dict[str, float] = field(default_factory=dict)
    _held: dict[str, float] = field(default_factory=dict)
    _entitled: dict[str, float] = field(default_factory=dict)

    def note(
        self, at: float, jobs: Sequence[Mapping[str, Any]], shares: Iterable[Mapping[str, Any]]
    ) -> None:
        """Take in how jobs and tenants stand now; counts from the last time if all contended."""
        steps = dict.fromkeys(self.weights, 0.0)
        weight = dict.fromkeys(self.weights, 0.0)
        for job in jobs:
            steps[job["tenant"]] += job["steps_done"] / self.normal_speed[job["workload"]]
            weight[job["tenant"]] += job["weight"] * (job["state"] not in OVER)
        held = {one["tenant"]: one["device_hours"] for one in shares}
        if self._last is not None and self._all_contend(jobs):
            before_at, before, held_before = self._last
            self.lasted_s += at - before_at
            for tenant in self.weights:
                part = weight[tenant] / sum(weight.values())
                _add(self._entitled, tenant, part * (at - before_at))
                _add(self._progress, tenant, steps[tenant] - before[tenant])
                _add(self._held, tenant, held[tenant] - held_before.get(tenant, 0.0))
        self._last = (at, steps, held) if set(held) == set(self.weights) else None

    def _all_contend(self, jobs: Sequence[Mapping[str, Any]]) -> bool:
        """Tell whether every tenant has jobs for all devices that its weight stands for."""
        wants = dict.fromkeys(self.weights, 0)
        for job in jobs:
            wants[job["tenant"]] += job["gang"] * (job["state"] not in OVER)
        total = sum(self.weights.values())
        return all(
            wants[tenant] >= self.devices * weight / total
            for tenant, weight in self.weights.items()
        )

    def received(self) -> list[Received]:
        """Return each tenant's parts; nothing if there was no contention."""
        if not self.lasted_s:
            return []
        return [
            Received(
                tenant,
                weight,
                self._entitled[tenant] / self.lasted_s,
                self._progress[tenant] / (sum(self._progress.values()) or 1.0),
                self._held[tenant] / (sum(self._held.values()) or 1.0),
            )
            for tenant, weight in self.weights.items()
        ]


def _add(counts: dict[str, float], tenant: str, more: float) -> None:
    counts[tenant] = counts.get(tenant, 0.0) + more
