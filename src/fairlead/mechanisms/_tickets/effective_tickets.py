"""Effective tickets: the devices of one accelerator that each tenant is due (§3.2)."""

import numpy as np

from fairlead.model.arrays import FloatArray

_MORE = 1e-9
"""devices by which the demand of a tenant that shares its devices exceeds what it is due"""


class AcceleratorPool:
    """One accelerator's devices, the tenants' tickets for them, and their demand.

    All tenants have some tickets. A tenant that needs less than its share is satisfied first, and
    the rest is divided again among the others: the weight readjustment of §3.2.
    """

    def __init__(self, tickets: FloatArray, devices: float) -> None:
        self.tickets, self.devices = tickets, devices
        self.demand = np.zeros(len(tickets))
        """tenants → devices that its jobs with a home here can use"""
        self._due: FloatArray | None = None
        self._grown = False
        """whether demand has grown since devices were divided"""
        self._level = np.inf
        self._total = 0.0
        self._curve: tuple[FloatArray, FloatArray] | None = None
        self._prospects: dict[tuple[float, float], float] = {}
        """by demand and tickets: tenants with the same have the same"""

    def add(self, tenant: int, devices: float) -> None:
        """Count devices that a tenant can use from now on; fewer if negative."""
        # A tenant that already shares its devices among its jobs takes no more from others.
        shares = self._due is not None and self.demand[tenant] > self._due[tenant] + _MORE
        self.demand[tenant] += devices
        if devices > 0 and shares:
            self._total += devices
            self._grown = True
        else:
            self._due = None

    def restore(self, demand: FloatArray) -> None:
        """Let tenants use these devices, and no others."""
        self.demand, self._due = demand, None

    @property
    def answers_as_if_divided(self) -> bool:
        """Whether devices divided again, each tenant due the same, would leave all answers alike.

        Of tenants that share their devices among their jobs only what they are due counts.
        """
        return not self._grown or bool((self.demand > self.due + _MORE).all())

    def _divide(self) -> FloatArray:
        self._curve, self._grown = None, False
        self._prospects.clear()
        self._total = float(self.demand.sum())
        if self._total <= self.devices:
            self._level = np.inf
            return self.demand.copy()
        ratio, filled = self._filling()
        place = int(filled.searchsorted(self.devices))
        below, above = (ratio[place - 1], ratio[place]) if place else (0.0, ratio[0])
        low, high = (filled[place - 1], filled[place]) if place else (0.0, filled[0])
        self._level = below + (self.devices - low) * (above - below) / (high - low)
        return np.minimum(self.demand, self._level * self.tickets)

    def _filling(self) -> tuple[FloatArray, FloatArray]:
        """Return levels at which a tenant is satisfied, ascending, and devices used at each."""
        if self._curve is None:
            ratio = self.demand / self.tickets
            order = ratio.argsort(kind="stable")
            ratio, demand, tickets = ratio[order], self.demand[order], self.tickets[order]
            still_open = tickets.sum() - tickets.cumsum()
            self._curve = ratio, demand.cumsum() + ratio * still_open
        return self._curve

    @property
    def due(self) -> FloatArray:
        """tenants → devices it is due: at most what its jobs can use."""
        if self._due is None:
            self._due = self._divide()
        return self._due

    def time(self, tenant: int, more: int) -> float:
        """Return the part of the time for which jobs run if they can use ``more`` devices.

        This is ticketsPerGPU once a job has come, by which Algorithm 2 judges an accelerator.
        """
        if self._due is None:
            self._due = self._divide()
        if self._total + more <= self.devices:
            return 1.0
        entitled = self.entitlement_if_all_usable(tenant)
        return min(1.0, entitled / (self.demand.item(tenant) + more))

    def entitlement_if_all_usable(self, tenant: int) -> float:
        """Return what a tenant would be due if it could use all devices."""
        due, mine = self.due.item(tenant), self.demand.item(tenant)
        if mine > due + _MORE:
            return due
        own = self.tickets.item(tenant)
        if (mine, own) not in self._prospects:
            # The curve with this tenant never satisfied: it adds what it takes beyond its demand.
            ratio, filled = self._filling()
            over = filled + np.maximum(ratio * own - mine, 0.0)
            place = int(over.searchsorted(self.devices))
            level = _crossing(ratio, over, place, self.devices, own)
            self._prospects[mine, own] = max(level * own, mine)
        return self._prospects[mine, own]


def _crossing(
    ratio: FloatArray, filled: FloatArray, place: int, devices: float, slope: float
) -> float:
    """Return the level at which a filling curve reaches the devices; beyond its end by slope."""
    if place == len(ratio):
        return float(ratio[-1] + (devices - filled[-1]) / slope)
    below, low = (ratio[place - 1], filled[place - 1]) if place else (0.0, 0.0)
    above, high = ratio[place], filled[place]
    if high <= low:
        return float(above)
    return float(below + (devices - low) * (above - below) / (high - low))
