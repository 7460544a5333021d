"""Consolidated and spread speeds of gangs, which teach each other by their ratio.

The logarithm of the ratio is a term of all the workloads that a tenant can see, plus one of the
workload, plus an error of each cell (random effects, in closed form). Before the tenant has
measured a gang in a known placement, a spread gang is as fast as a consolidated one.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

from fairlead.model.speeds.key import SpeedKey, plain_workload, scope_of

COMMON_SD = 0.4
"""standard deviation of the term that all workloads share"""
WORKLOAD_SD = 0.25
"""standard deviation of a workload's term"""
CELL_SD = 0.1
"""standard deviation of one gang on one accelerator around both"""


class Ratio(NamedTuple):
    """Speed of a spread gang over that of the consolidated one."""

    value: float
    doubt: float
    """standard deviation of its logarithm"""


EQUAL = Ratio(1.0, 0.0)


class TaughtSpeed(NamedTuple):
    """A speed that was measured in the other placement of the gang."""

    steps_per_s: float
    doubt: float | None
    """standard deviation of its logarithm; None: the measurement counts for every placement"""


class PlacementSpeeds:
    """Derives speeds of one placement from measured speeds of the other one.

    ``on_one_node``: the consolidated speeds that were measured on one node. Other ones count for
    every placement: earlier versions measured them so, and a gang that needs several nodes has no
    better placement. ``listed``: the table's consolidated speed of a gang.
    """

    def __init__(
        self,
        table: Mapping[SpeedKey, float],
        listed: Callable[[str, int, str], float | None],
        measured: Mapping[SpeedKey, float],
        on_one_node: frozenset[SpeedKey],
    ) -> None:
        self._table, self._listed = table, listed
        self._measured, self._on_one_node = measured, on_one_node
        self._spread = [key for key in measured if key.placement == "spread"]
        scopes = (scope_of(key.workload) for key in (*on_one_node, *self._spread))
        self._tenants = frozenset(scope.tenant for scope in scopes if scope is not None)
        self._evidence = cache(self._log_ratios)
        self._estimate = cache(self._estimated_ratio)

    @property
    def apart(self) -> bool:
        """Whether any gang was measured in a known placement."""
        return bool(self._tenants)

    def ratio(self, key: SpeedKey) -> Ratio:
        """Return the table's ratio for a gang, otherwise the estimated one."""
        scope = scope_of(key.workload)
        if scope is None or scope.tenant not in self._tenants:
            return EQUAL
        listed = self._listed_ratio(key)
        if listed is not None:
            return Ratio(listed, CELL_SD)
        return self._estimate(scope.tenant, plain_workload(key.workload) or key.workload)

    def unlisted_ratio(self, key: SpeedKey) -> Ratio:
        """Return the ratio by which a gang differs from a consolidated one or a table's entry."""
        if key.placement != "spread" or key.gang == 1:
            return EQUAL
        listed = key._replace(workload=plain_workload(key.workload)) in self._table
        return EQUAL if listed else self.ratio(key)

    def taught(self, key: SpeedKey) -> TaughtSpeed | None:
        """Return the speed that a measurement of the other placement teaches; None: none does.

        A consolidated speed of the table stays where the table has no spread one: the difference
        is due to the network.
        """
        if key.placement == "consolidated":
            return self._taught_by_spread(key) if self._spread else None
        near = key._replace(placement="consolidated")
        speed = self._measured.get(near)
        if speed is None or near not in self._on_one_node:
            return None if speed is None else TaughtSpeed(speed, None)
        ratio = self.ratio(near)
        return TaughtSpeed(_rounded(speed * ratio.value), ratio.doubt)

    def _taught_by_spread(self, key: SpeedKey) -> TaughtSpeed | None:
        speed = self._measured.get(key._replace(placement="spread"))
        if speed is None or (self._listed_speed(key) and self._listed_ratio(key) is None):
            return None
        ratio = self.ratio(key)
        return TaughtSpeed(_rounded(speed / ratio.value), ratio.doubt)

    def as_consolidated(self) -> Mapping[SpeedKey, float]:
        """Return the measured consolidated speeds, and those that spread ones teach."""
        if not self._spread:
            return self._measured
        known = {key: s for key, s in self._measured.items() if key.placement == "consolidated"}
        for far in self._spread:
            near = far._replace(placement="consolidated")
            taught = self.taught(near) if near not in known else None
            if taught is not None:
                known[near] = taught.steps_per_s
        return known

    def _listed_speed(self, key: SpeedKey) -> float:
        """Return the table's consolidated speed of a gang; 0 if it has none."""
        return self._listed(plain_workload(key.workload), key.gang, key.accelerator) or 0.0

    def _listed_ratio(self, key: SpeedKey) -> float | None:
        """Return the ratio of the table's two speeds; None unless it has both."""
        near = key._replace(workload=plain_workload(key.workload), placement="consolidated")
        speed, apart = (self._table.get(k, 0.0) for k in (near, near._replace(placement="spread")))
        return apart / speed if speed > 0.0 and apart > 0.0 else None

    def _estimated_ratio(self, tenant: str, workload: str) -> Ratio:
        evidence = self._evidence(tenant)
        precision, weighted = 1.0 / COMMON_SD**2, 0.0
        for other, logs in evidence.items():
            if other != workload:
                weight = 1.0 / (WORKLOAD_SD**2 + CELL_SD**2 / len(logs))
                precision += weight
                weighted += weight * sum(logs) / len(logs)
        mean, variance = weighted / precision, 1.0 / precision + WORKLOAD_SD**2
        own = evidence.get(workload, ())
        if own:
            precision = 1.0 / variance + len(own) / CELL_SD**2
            mean = (mean / variance + sum(own) / CELL_SD**2) / precision
            variance = 1.0 / precision
        return Ratio(math.exp(mean), math.sqrt(variance + CELL_SD**2))

    def _log_ratios(self, tenant: str) -> Mapping[str, tuple[float, ...]]:
        """Return workload → logarithms of the ratios that the table and the tenant know."""
        ratios: dict[str, dict[tuple[int, str], float]] = {}
        for key in self._table:
            if key.placement == "spread" and key.gang > 1 and key.partner is None:
                listed = self._listed_ratio(key)
                if listed is not None:
                    cells = ratios.setdefault(key.workload, {})
                    cells[key.gang, key.accelerator] = math.log(listed)
        for key in self._spread:
            scope = scope_of(key.workload)
            near, apart = self._consolidated(key), self._measured[key]
            if scope is not None and scope.tenant == tenant and near > 0.0 and apart > 0.0:
                cells = ratios.setdefault(scope.workload or key.workload, {})
                cells[key.gang, key.accelerator] = math.log(apart / near)
        return {name: tuple(cells.values()) for name, cells in ratios.items()}

    def _consolidated(self, spread: SpeedKey) -> float:
        """Return the known consolidated speed of a spread gang; 0 if there is none."""
        near = spread._replace(placement="consolidated")
        if near in self._measured:
            return self._measured[near] if near in self._on_one_node else 0.0
        return self._listed_speed(near)


def _rounded(speed: float) -> float:
    """Return a speed with six digits: the same on every machine."""
    return float(f"{speed:.6g}")
