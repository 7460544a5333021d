"""Turns homes into devices, leases to stop and placements to start."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fairlead.mechanisms._tickets.device_turns import DeviceTurns
from fairlead.mechanisms._tickets.pass_ranks import pass_ranks
from fairlead.mechanisms.gandiva_fair.node_assignment import JobHomes
from fairlead.mechanisms.gandiva_fair.stride import TIE
from fairlead.mechanisms.gandiva_fair.tickets import DeviceSites
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.lease import NO_PLACEMENTS, Placements
from fairlead.model.snapshot import Snapshot


class FreeDevices:
    """Devices (ascending) to be given out, by site, and the placements made of them."""

    def __init__(self, sites: DeviceSites, devices: IntArray) -> None:
        self._size: list[int] = sites.size.tolist()
        self.at: dict[int, list[int]] = {}
        for device, site in zip(devices.tolist(), sites.of_device[devices].tolist(), strict=True):
            self.at.setdefault(site, []).append(device)
        self._gapless = {
            site: here[-1] - here[0] < self._size[site] for site, here in self.at.items()
        }
        self._started: list[int] = []
        self._sizes: list[int] = []
        self._devices: list[int] = []

    def take(self, job: int, gang: int, where: Mapping[int, int]) -> None:
        """Start a job on the given number of devices of each site.

        Its search starts at a place that depends on the job, so that it mostly finds the devices
        of its last run.
        """
        devices = [
            device
            for site, count in where.items()
            for device in self._take_from(site, count, job * gang)
        ]
        self._started.append(job)
        self._sizes.append(len(devices))
        self._devices += sorted(devices)

    def take_ones(self, jobs: Sequence[int], sites: Sequence[int]) -> None:
        """Start each of these jobs in turn on one device of its site."""
        at, sizes, gapless, first = self.at, self._size, self._gapless, self._first
        for job, site in zip(jobs, sites, strict=True):
            here = at[site]
            if gapless[site]:
                self._devices.append(here.pop(first(here, sizes[site], job)))
            else:
                self._devices += self._take_from(site, 1, job)
        self._started += jobs
        self._sizes += [1] * len(jobs)

    @staticmethod
    def _first(here: list[int], size: int, place: int) -> int:
        """Return where the search starts in devices that are numbered without a gap."""
        return bisect_left(here, here[0] + size - (here[0] - place) % size) % len(here)

    def _take_from(self, site: int, count: int, place: int) -> list[int]:
        here, size = self.at[site], self._size[site]
        if not self._gapless[site]:
            here.sort(key=lambda device: (device - place) % size)
            taken = here[:count]
            del here[:count]
            return taken
        first = self._first(here, size, place)
        taken = here[first : first + count]
        del here[first : first + count]
        if len(taken) < count:
            over = count - len(taken)
            taken += here[:over]
            del here[:over]
        return taken

    def placements(self) -> Placements:
        """Return what was started."""
        if not self._started:
            return NO_PLACEMENTS
        job = np.array(self._started, dtype=np.int64)
        start = np.array([0, *self._sizes], dtype=np.int64).cumsum()
        return Placements(job, np.zeros_like(job), start, np.array(self._devices, dtype=np.int64))


def moves_to_homes(
    snap: Snapshot, homes: JobHomes, chosen: Iterable[int]
) -> tuple[IntArray, Placements]:
    """Return the leases to stop and what to start so that just the chosen rows run, at home."""
    sites, home = homes.sites, homes.home
    lane, device = (snap.holds >= 0).nonzero()
    row = snap.holds[lane, device]
    leased = snap.lease[row] >= 0
    row, device = row[leased], device[leased]
    stays = _rows_at_home(homes, row, device)
    runs = np.zeros(len(home), dtype=bool)
    wanted = np.array(list(chosen), dtype=np.int64)
    runs[wanted] = True
    stays &= runs
    continues = stays[row]
    stop: IntArray = snap.lease[list(dict.fromkeys(row[~continues].tolist()))]
    starting = wanted[~stays[wanted]]
    if not len(starting):
        return stop, NO_PLACEMENTS
    busy = np.zeros(len(sites.of_device), dtype=bool)
    busy[device[continues]] = True
    free = FreeDevices(sites, snap.usable[~busy[snap.usable]])
    jobs, sites_of = snap.job[starting].tolist(), home[starting].tolist()
    gangs = homes.gang[starting]
    if (gangs == 1).all():
        free.take_ones(jobs, sites_of)
        return stop, free.placements()
    columns = starting.tolist(), jobs, gangs.tolist(), sites_of
    for i, job, gang, site in zip(*columns, strict=True):
        if gang == 1:
            free.take_ones([job], [site])
        else:
            free.take(job, gang, homes.needs.get(i) or {site: gang})
    return stop, free.placements()


def single_moves(
    snap: Snapshot, homes: JobHomes, passes: FloatArray
) -> tuple[IntArray, Placements] | None:
    """Return the same for the jobs whose turn it is, if all need one device; else None."""
    home = homes.home
    if (
        len(snap.holds) != 1
        or homes.needs
        or not len(home)
        or home[home.argmin()] < 0
        or homes.gang[homes.gang.argmax()] > 1
    ):
        return None
    device: IntArray = np.full(len(home), -1)
    held = (snap.holds[0] >= 0).nonzero()[0]
    row = snap.holds[0][held]
    device[row] = held
    if np.count_nonzero(device >= 0) < len(held) or (snap.lease[row] < 0).any():
        return None
    turns = DeviceTurns(home, device, snap.usable, homes.sites.of_device, snap.job)
    if not turns.fit():
        return None
    stop, start, on = turns.take(pass_ranks(passes, TIE), sites_by_first_row(home))
    if not len(start):
        return snap.lease[stop], NO_PLACEMENTS
    job = snap.job[start]
    return snap.lease[stop], Placements(job, np.zeros_like(job), np.arange(len(job) + 1), on)


def sites_by_first_row(home: IntArray) -> IntArray:
    """Return the sites that are homes, in the order of the first row of each."""
    first = np.full(int(home.max()) + 1, len(home))
    np.minimum.at(first, home, np.arange(len(home)))
    sites = (first < len(home)).nonzero()[0]
    ordered: IntArray = sites[first[sites].argsort()]
    return ordered


def _rows_at_home(homes: JobHomes, row: IntArray, device: IntArray) -> BoolArray:
    """Return rows → whether it holds the devices of its home, given who holds each device."""
    count = len(homes.home)
    held = np.bincount(row, minlength=count)
    there = np.bincount(row[homes.sites.of_device[device] == homes.home[row]], minlength=count)
    at_home: BoolArray = (there == homes.gang) & (held == there)
    for i, where in homes.needs.items():
        at_home[i] = count_by_site(homes.sites, device[row == i].tolist()) == where
    return at_home


def held_by_row(snap: Snapshot, of: BoolArray) -> dict[int, list[int]]:
    """Return row → devices that it holds under its lease, for some of the rows."""
    lane, device = (snap.holds >= 0).nonzero()
    row = snap.holds[lane, device]
    mine = of[row] & (snap.lease[row] >= 0)
    held: dict[int, list[int]] = {}
    for i, one in zip(row[mine].tolist(), device[mine].tolist(), strict=True):
        held.setdefault(i, []).append(one)
    return held


def count_by_site(sites: DeviceSites, devices: Iterable[int]) -> dict[int, int]:
    """Return site → how many of these devices it holds."""
    count: dict[int, int] = {}
    for device in devices:
        site = int(sites.of_device[device])
        count[site] = count.get(site, 0) + 1
    return count
