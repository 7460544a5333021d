"""Jobs of one device take turns on the devices of their homes, round after round."""

from bisect import bisect_left
from itertools import pairwise

import numpy as np

from fairlead.compiled import compiled
from fairlead.model.arrays import FloatArray, IntArray

Moves = tuple[IntArray, IntArray, IntArray]
"""rows that stop, in the order of their devices; rows that start; and the device of each"""


class DeviceTurns:
    """The holders of devices, from one round to the next.

    ``home`` is rows → site, ``device`` rows → device, -1 for none, and ``of_device`` devices →
    site. With ``job`` a starting job looks for a device from a place of its own on, else it takes
    the first.
    """

    def __init__(
        self,
        home: IntArray,
        device: IntArray,
        usable: IntArray,
        of_device: IntArray,
        job: IntArray | None = None,
    ) -> None:
        self._home, self._job, self._of_device = home, job, of_device
        self._device = device.copy()
        sites = int(of_device.max()) + 1
        site = of_device[usable]
        self._devices: IntArray = usable[site.argsort(kind="stable")]
        """usable devices, site by site"""
        self._begin: IntArray = np.concatenate([[0], np.bincount(site, minlength=sites).cumsum()])
        """sites → where its devices begin, and the end"""
        self._moves: IntArray = np.empty((3, len(home)), dtype=np.int64)

    @property
    def places(self) -> tuple[IntArray, IntArray | None, IntArray, IntArray]:
        """Homes and jobs of the rows, where the devices of each site begin, and the devices."""
        return self._home, self._job, self._begin, self._devices

    def continue_from(self, device: IntArray) -> None:
        """Let rows hold these devices from now on."""
        self._device = device

    def fit(self) -> bool:
        """Return whether held devices are usable, and every site's are numbered without gap."""
        held = self._device[self._device >= 0]
        if len(self._devices) < len(self._of_device) and not np.isin(held, self._devices).all():
            return False
        begin, end = self._begin[:-1], self._begin[1:]
        some = end > begin
        first, last = self._devices[begin[some]], self._devices[end[some] - 1]
        return bool((last - first < (end - begin)[some]).all())

    def take(self, ranks: FloatArray, sites: IntArray | None = None) -> Moves:
        """Return the moves after which the rows of least rank run on each site, at home.

        Of equal ranks the first row runs. Rows start in the order of their ranks; where ``sites``
        is given, site by site.
        """
        order = ranks.argsort(kind="stable")
        if compiled is None:
            return self._take(order.tolist(), sites)
        arrays = self._home, self._job, self._begin, self._devices, sites
        stops, starts = compiled.device_turns(order, *arrays, self._device, self._moves)
        stop, start, device = self._moves
        return stop[:stops].copy(), start[:starts].copy(), device[:starts].copy()

    def _take(self, order: list[int], sites: IntArray | None) -> Moves:
        home, begin, devices = self._home.tolist(), self._begin.tolist(), self._devices.tolist()
        room = [end - start for start, end in pairwise(begin)]
        chosen = []
        for row in order:
            if room[home[row]]:
                room[home[row]] -= 1
                chosen.append(row)
        if sites is not None:
            place = {site: i for i, site in enumerate(sites.tolist())}
            chosen.sort(key=lambda row: place[home[row]])
        runs = np.zeros(len(home), dtype=bool)
        runs[chosen] = True
        runs &= self._of_device[self._device] == self._home
        stop = ((self._device >= 0) & ~runs).nonzero()[0]
        stop = stop[self._device[stop].argsort()]
        self._device[stop] = -1
        starting = [row for row in chosen if self._device[row] < 0]
        held = set(self._device.tolist())
        free = [
            [device for device in devices[start:end] if device not in held]
            for start, end in pairwise(begin)
        ]
        placed = []
        for row in starting:
            site = home[row]
            here, size = free[site], begin[site + 1] - begin[site]
            place_of = 0
            if self._job is not None:
                wanted = here[0] + size - (here[0] - int(self._job[row])) % size
                place_of = bisect_left(here, wanted) % len(here)
            placed.append(here.pop(place_of))
        start, device = np.array(starting, dtype=np.int64), np.array(placed, dtype=np.int64)
        self._device[start] = device
        return stop, start, device
