"""Load of a site on which gangs that cannot run side by side need separate time (§3.3)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from fairlead.mechanisms.gandiva_fair.node_assignment import JobHomes
from fairlead.model.arrays import FloatArray


class JobDemand(NamedTuple):
    """The devices that one job needs of a site at once, and its tickets there, in devices."""

    gang: int
    tickets: float

    @property
    def time(self) -> float:
        """The part of the time that it is to run."""
        return self.tickets / self.gang


@dataclass(frozen=True, slots=True)
class SiteLoad:
    """The jobs with a home on one site, the largest gang first."""

    size: int
    parts: tuple[JobDemand, ...] = ()

    @classmethod
    def of(cls, size: int, parts: Iterable[JobDemand]) -> "SiteLoad":
        """Return the load of these jobs."""
        return cls(size, tuple(sorted(parts, reverse=True)))

    def joined(self, part: JobDemand) -> "SiteLoad":
        """Return the load with one more job."""
        return SiteLoad.of(self.size, (*self.parts, part))

    def without(self, part: JobDemand) -> "SiteLoad":
        """Return the load without one such job."""
        left = list(self.parts)
        left.remove(part)
        return replace(self, parts=tuple(left))

    @property
    def gangs(self) -> int:
        """Devices that all its jobs could use at once."""
        return sum(part.gang for part in self.parts)

    @property
    def rivals(self) -> tuple[JobDemand, ...]:
        """The jobs that cannot run beside the largest gang."""
        if not self.parts:
            return ()
        room = self.size - self.parts[0].gang
        return tuple(part for part in self.parts[1:] if part.gang > room)

    @property
    def load(self) -> float:
        """Tickets for each device (Eq. 2), or the time that rivals need one after another."""
        spread = sum(part.tickets for part in self.parts) / self.size
        rivals = self.rivals
        if not rivals:
            return spread
        theirs = max(part.time for part in rivals)
        return max(spread, self.parts[0].time + theirs)

    @property
    def gap(self) -> int:
        """Devices that nobody uses while the largest gang waits for its rivals."""
        if not self.rivals:
            return 0
        return max(self.size - (self.gangs - self.parts[0].gang), 0)

    @property
    def idle(self) -> float:
        """The part of the time for which there is such a gap."""
        rivals = self.rivals
        if not rivals:
            return 0.0
        theirs = max(part.time for part in rivals)
        return theirs / (self.parts[0].time + theirs)


def site_loads(homes: JobHomes, accelerator: int, tickets: FloatArray) -> dict[int, SiteLoad]:
    """Return site → its jobs, for the sites of an accelerator that are up."""
    sites = homes.sites
    up = ((sites.accelerator == accelerator) & (sites.size > 0)).nonzero()[0].tolist()
    parts: dict[int, list[JobDemand]] = {site: [] for site in up}
    small = (homes.home >= 0).nonzero()[0]
    for site, gang, worth in zip(
        homes.home[small].tolist(),
        homes.gang[small].tolist(),
        tickets[small].tolist(),
        strict=True,
    ):
        if site in parts:
            parts[site].append(JobDemand(gang, worth))
    for row, where in homes.needs.items():
        for site, devices in where.items():
            if site in parts:
                worth = float(tickets[row]) * devices / int(homes.gang[row])
                parts[site].append(JobDemand(devices, worth))
    return {site: SiteLoad.of(int(sites.size[site]), members) for site, members in parts.items()}
