"""Turns homes into devices, leases to stop and placements to start."""

from collections.abc import Iterable, Mapping

import numpy as np

from fairlead.mechanisms.gandiva_fair.node_assignment import JobHomes
from fairlead.mechanisms.gandiva_fair.tickets import DeviceSites
from fairlead.model.arrays import IntArray
from fairlead.model.lease import NO_PLACEMENTS, Placement, Placements
from fairlead.model.snapshot import Snapshot


class FreeDevices:
    """Devices to be given out, by site, and the placements made of them."""

    def __init__(self, snap: Snapshot, sites: DeviceSites, devices: Iterable[int]) -> None:
        self._snap, self._sites = snap, sites
        self.at: dict[int, list[int]] = {}
        for device in devices:
            self.at.setdefault(int(sites.of_device[device]), []).append(device)
        self._start: list[Placement] = []

    def take(self, row: int, where: Mapping[int, int]) -> None:
        """Start a job on the given number of devices of each site.

        Its search starts at a place that depends on the job, so that it mostly finds the devices
        of its last run.
        """
        job, gang, devices = int(self._snap.job[row]), int(self._snap.gang[row]), list[int]()
        for site, count in where.items():
            size = int(self._sites.size[site])
            place = job * gang % size
            here = sorted(self.at[site], key=lambda device: (device - place) % size)
            devices += here[:count]
            self.at[site] = here[count:]
        self._start.append(Placement(job, 0, tuple(sorted(devices))))

    def placements(self) -> Placements:
        """Return what was started."""
        return Placements.of(self._start) if self._start else NO_PLACEMENTS


def moves_to_homes(
    snap: Snapshot, homes: JobHomes, chosen: Iterable[int]
) -> tuple[IntArray, Placements]:
    """Return the leases to stop and what to start so that just the chosen rows run, at home."""
    wanted = {row: where_of(homes, row) for row in chosen}
    held = held_by_row(snap)
    staying = {
        row
        for row, devices in held.items()
        if row in wanted and count_by_site(homes.sites, devices) == wanted[row]
    }
    busy = {device for row in staying for device in held[row]}
    free = FreeDevices(snap, homes.sites, (d for d in snap.usable.tolist() if d not in busy))
    for row, where in wanted.items():
        if row not in staying:
            free.take(row, where)
    stop = [int(snap.lease[row]) for row in held if row not in staying]
    return np.array(stop, dtype=np.int64), free.placements()


def where_of(homes: JobHomes, row: int) -> Mapping[int, int]:
    """Return site → devices of a job's home."""
    return homes.needs.get(row) or {int(homes.home[row]): int(homes.gang[row])}


def held_by_row(snap: Snapshot) -> dict[int, list[int]]:
    """Return row → devices that it holds under its lease."""
    lane, device = (snap.holds >= 0).nonzero()
    held: dict[int, list[int]] = {}
    for row, mine in zip(snap.holds[lane, device].tolist(), device.tolist(), strict=True):
        if snap.lease[row] >= 0:
            held.setdefault(row, []).append(mine)
    return held


def count_by_site(sites: DeviceSites, devices: Iterable[int]) -> dict[int, int]:
    """Return site → how many of these devices it holds."""
    count: dict[int, int] = {}
    for device in devices:
        site = int(sites.of_device[device])
        count[site] = count.get(site, 0) + 1
    return count
