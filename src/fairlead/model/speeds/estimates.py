"""Estimates of speeds that nobody has measured: unknown is not impossible."""

from collections.abc import Iterable, Mapping
from functools import cache

from fairlead.model.speeds.key import SpeedKey, plain_workload, scope_of

DEFAULT_SPEED = 1.0
"""steps per second of one device while nothing is known of a workload"""


class SpeedEstimates:
    """Estimates a workload's unknown speed from its speeds elsewhere and from other workloads.

    Uses the speeds of jobs alone on consolidated devices. ``unknown`` is the speed of one device
    for a workload without any. A measured speed counts within its tenant only.
    """

    def __init__(
        self,
        table: Mapping[SpeedKey, float],
        measured: Mapping[SpeedKey, float],
        unknown: float = DEFAULT_SPEED,
    ) -> None:
        self._unknown = unknown
        self._by_workload: dict[str, dict[tuple[str, int], float]] = {}
        for key, speed in table.items():
            if speed > 0.0 and key.partner is None and key.placement == "consolidated":
                of = self._by_workload.setdefault(key.workload, {})
                of[key.accelerator, key.gang] = speed
        for key, speed in measured.items():
            listed = self._by_workload.get(plain_workload(key.workload), {})
            of = self._by_workload.setdefault(key.workload, dict(listed))
            of[key.accelerator, key.gang] = speed
        self._ratio = cache(self._mean_ratio)

    def estimate(self, workload: str, gang: int, accelerator: str) -> float:
        """Return the mean of the workload's known speeds, each scaled to the gang and accelerator.

        A speed on another accelerator is scaled as other workloads are on both, or not at all if
        none was measured on both.
        """
        known = self._by_workload.get(workload)
        scope = scope_of(workload)
        tenant = None if scope is None else scope.tenant
        if not known:
            return gang * self._unknown
        elsewhere = {name for name, _ in known}
        if accelerator in elsewhere:
            elsewhere = {accelerator}
        return _mean(
            _at_gang(known, name, gang) * self._ratio(tenant, name, accelerator)
            for name in sorted(elsewhere)
        )

    def _mean_ratio(self, tenant: str | None, source: str, target: str) -> float:
        """Return the mean speed on ``target`` over that on ``source``; 1 if none has both."""
        if source == target:
            return 1.0
        ratios = [
            speeds[target, gang] / speed
            for speeds in self._visible_to(tenant)
            for (name, gang), speed in speeds.items()
            if name == source and (target, gang) in speeds
        ]
        return _mean(ratios) if ratios else 1.0

    def _visible_to(self, tenant: str | None) -> Iterable[Mapping[tuple[str, int], float]]:
        """Return the speeds of the table's workloads, as the tenant has measured them."""
        chosen: dict[str, Mapping[tuple[str, int], float]] = {}
        for name, speeds in self._by_workload.items():
            scope = scope_of(name)
            if scope is None or scope.tenant == tenant:
                chosen[plain_workload(name) or name] = speeds
        return chosen.values()


def _at_gang(known: Mapping[tuple[str, int], float], accelerator: str, gang: int) -> float:
    """Return the speed of a gang, in proportion to the nearest known gang there."""
    gangs = [size for name, size in known if name == accelerator]
    nearest = min(gangs, key=lambda size: (abs(size - gang), size))
    return known[accelerator, nearest] * gang / nearest


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
