"""One decision of Hadar: who runs on which devices (Algorithm 1, line 5)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.mechanisms.hadar.bids import JobUtilities, held_devices
from fairlead.mechanisms.hadar.devices import Devices, choose_devices, renamed
from fairlead.mechanisms.hadar.dp_allocation import programme
from fairlead.mechanisms.hadar.find_alloc import Cells, DeviceDeal, Market
from fairlead.mechanisms.hadar.utilities import utility_named
from fairlead.model.errors import UsageError
from fairlead.model.lease import Placement
from fairlead.model.plan import NOBODY
from fairlead.model.snapshot import Snapshot


@dataclass(frozen=True)
class Options:
    """What Hadar and HadarE can be told about their auctions."""

    round_s: float = 360.0
    utility: str = "throughput"
    """what finishing a job is worth: throughput (the paper's), normalised, completion, makespan"""
    restart_s: float = 10.0
    """what a restart is believed to cost a job that has run before"""
    communication: float = 0.1
    """part of its utility that a gang on very many nodes pays for talking across them"""
    mixed: bool = True
    """whether one gang may have devices of several accelerators"""
    eta: float = 1.0
    """η of Eq. 7: the greater, the lower the first price; at least 1/4"""
    horizon_s: float = 0.0
    """T - now of Eq. 7; 0: Graham's bound on when all jobs are done"""
    reconsider_s: float = 3600.0
    """how long running jobs are left alone while nobody comes or goes"""
    strict: bool = False
    """leave devices idle that no waiting job can pay for, as the prices have it"""
    states: int = 64
    """how many ways to serve the queue the programme follows at most"""
    effort: int = 2048
    """how many pairs of such a way and a job it looks at, about; bounds the time of a decision"""

    def __post_init__(self) -> None:
        utility_named(self.utility)
        for name, holds, wanted in (
            ("round-s", self.round_s > 0, "above 0"),
            ("restart-s", self.restart_s >= 0, "0 or more"),
            ("communication", 0 <= self.communication < 1, "from 0 to below 1"),
            ("eta", self.eta >= 0.25, "at least 0.25, or the first price might be the last"),
            ("horizon-s", self.horizon_s >= 0, "0 or more"),
            ("reconsider-s", self.reconsider_s >= 0, "0 or more"),
            ("states", self.states >= 1, "1 or more"),
            ("effort", self.effort >= 1, "1 or more"),
        ):
            if not holds:
                raise UsageError(f"{name} must be {wanted}")

    @property
    def mixes_accelerators(self) -> bool:
        """Whether gangs are accepted that no accelerator has enough devices for."""
        return self.mixed


class Auction:
    """One decision: the jobs' bids and the devices that are up."""

    def __init__(
        self,
        options: Options,
        snap: Snapshot,
        *,
        devices: Iterable[int] | None = None,
        held: Mapping[int, Devices] | None = None,
        rows: Sequence[int] | None = None,
    ) -> None:
        """Take part of the devices and jobs where told so, and what these jobs may keep."""
        self._options = options
        self._snap = snap
        self._rows = range(len(snap.job)) if rows is None else rows
        up = snap.usable.tolist() if devices is None else devices
        self.cells = Cells.of(snap.cluster, up)
        self.devices = {device for here in self.cells.devices for device in here}
        self.held = held_devices(snap, self.devices) if held is None else held
        self.worth = JobUtilities.of(
            snap,
            utility_named(options.utility),
            restart_s=options.restart_s,
            round_s=options.round_s,
            horizon=options.horizon_s,
        )
        self._node_of = snap.cluster.node_of.tolist()
        self._kind_of = snap.cluster.accelerator_of.tolist()
        self._on = [on if row in self.held else NOBODY for row, on in enumerate(snap.on.tolist())]

    def decide(self, *, again: bool) -> dict[int, Devices]:
        """Return job → devices; ``again``: running jobs may be disturbed where it pays in all.

        Waiting jobs get what nobody holds ("progressively", §IV-B). If all devices sold anew
        are worth more, restarts counted, that is what happens.
        """
        held = {device for devices in self.held.values() for device in devices}
        kept = {**self.held, **self.beside(self.devices - held)}
        if again and self.held:
            anew = self._sell_all()
            if self.total_worth(anew) > self.total_worth(kept) * (1.0 + 1e-9):
                return anew
        return kept

    def _sell_all(self) -> dict[int, Devices]:
        """Return who runs where when all devices are sold again."""
        deals = self.sell([len(devices) for devices in self.cells.devices], self._rows)
        deals = renamed(self.cells, deals, self.held)
        return choose_devices(self.cells, deals, self.held, self.devices)

    def beside(self, idle: set[int]) -> dict[int, Devices]:
        """Return which waiting jobs get which of these devices; all that runs goes on."""
        free = [sum(device in idle for device in devices) for devices in self.cells.devices]
        rows = [row for row in self._rows if row not in self.held]
        return choose_devices(self.cells, self.sell(free, rows), {}, idle)

    def sell(self, free: Sequence[int], rows: Iterable[int]) -> dict[int, DeviceDeal]:
        """Return row → deal for the free devices.

        What is left when nobody can pay any more is sold again as if it were the cluster and
        those left out were all its jobs, unless the prices are strict: then no device stays
        idle that somebody waiting could use, and everybody still pays less than he gains.
        """
        options, on = self._options, self._on
        queue = self.worth.bids(rows, on)
        bidders = self.worth.bidders
        capacity: Sequence[int] = [len(devices) for devices in self.cells.devices]
        sold: dict[int, DeviceDeal] = {}
        while queue and any(free):
            prices = bidders.prices(options.eta)
            market = Market(self.cells, capacity, prices, options.communication, options.mixed)
            width = max(1, min(options.states, options.effort // len(queue)))
            deals = programme(market, market.opening(free), queue, width=width)
            left = list(free)
            for place, deal in deals:
                sold[queue[place].row] = deal
                for cell, count in deal.take:
                    left[cell] -= count
            if options.strict or not deals:
                break
            queue = [bid for bid in queue if bid.row not in sold]
            bidders = self.worth.bidders.only(np.array([b.row for b in queue], dtype=np.int64))
            free = capacity = left
        return sold

    def total_worth(self, running: Mapping[int, Devices]) -> float:
        """Return what a plan is worth in all: utilities less the cost of communication."""
        total = 0.0
        for row, devices in running.items():
            nodes = len({self._node_of[device] for device in devices})
            kinds = {self._kind_of[device] for device in devices}
            stays = self.held.get(row) == devices
            utility = self.worth.utility(row, kinds, one_node=nodes == 1, stays=stays)
            total += utility * (1.0 - self._options.communication * (1.0 - 1.0 / nodes))
        return total

    def placements(self, running: Mapping[int, Devices]) -> list[Placement]:
        """Return a plan's placements."""
        job = self._snap.job.tolist()
        return [Placement(job[row], 0, running[row]) for row in sorted(running)]
