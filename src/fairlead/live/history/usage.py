"""Usage: device-seconds by day, tenant and accelerator."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

DAY_S = 86400.0
_MAX_DAYS = 400
"""days for which usage is kept"""

Key = tuple[str, str]
"""tenant and accelerator"""


class HeldDevices(NamedTuple):
    """Devices of one accelerator that a tenant holds from one time to another."""

    tenant: str
    accelerator: str
    devices: int
    began_at: float
    ended_at: float


class UsageLedger:
    """Device-seconds of ended leases; days begin at midnight UTC."""

    def __init__(self) -> None:
        self.days: dict[int, dict[Key, float]] = {}
        """days since 1970 → device-seconds"""
        self.totals: dict[Key, float] = {}
        """device-seconds of all days, those no longer kept included"""

    def add(self, held: HeldDevices) -> None:
        """Add the devices of a lease that has ended."""
        key = held.tenant, held.accelerator
        for day, device_s in _by_day(held):
            used = self.days.setdefault(day, {})
            used[key] = used.get(key, 0.0) + device_s
            self.totals[key] = self.totals.get(key, 0.0) + device_s
        while len(self.days) > _MAX_DAYS:
            del self.days[min(self.days)]

    def with_open(self, held: Iterable[HeldDevices]) -> "UsageLedger":
        """Return a copy that also has the devices of leases that are still open."""
        ledger = UsageLedger()
        ledger.days = {day: dict(used) for day, used in self.days.items()}
        ledger.totals = dict(self.totals)
        for each in held:
            ledger.add(each)
        return ledger

    def saved(self) -> dict[str, Any]:
        """Return the ledger for ``restore``."""
        return {
            "days": {str(day): _entries(used) for day, used in self.days.items()},
            "totals": _entries(self.totals),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take what ``saved`` returned; an earlier version saved nothing."""
        self.days = {int(day): _table(used) for day, used in saved.get("days", {}).items()}
        self.totals = _table(saved.get("totals", ()))


def _by_day(held: HeldDevices) -> Iterable[tuple[int, float]]:
    """Yield the device-seconds of each day."""
    at = held.began_at
    while at < held.ended_at:
        day = math.floor(at / DAY_S)
        until = min((day + 1) * DAY_S, held.ended_at)
        yield day, held.devices * (until - at)
        at = until


def _entries(used: Mapping[Key, float]) -> list[list[object]]:
    return [[tenant, accelerator, device_s] for (tenant, accelerator), device_s in used.items()]


def _table(entries: Iterable[Any]) -> dict[Key, float]:
    return {(str(tenant), str(name)): float(device_s) for tenant, name, device_s in entries}
