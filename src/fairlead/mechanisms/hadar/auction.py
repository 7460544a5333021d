"""One decision of Hadar: the devices of every job (Algorithm 1, line 5)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.compiled import compiled
from fairlead.mechanisms.hadar.bid_queue import BidQueue
from fairlead.mechanisms.hadar.bids import JobUtilities, held_devices
from fairlead.mechanisms.hadar.devices import (
    Devices,
    choose_devices,
    choose_single_devices,
    with_nodes_exchanged,
)
from fairlead.mechanisms.hadar.dp_allocation import allocate_queue, allocate_singles
from fairlead.mechanisms.hadar.find_alloc import DeviceCells, DeviceDeal, DeviceMarket
from fairlead.mechanisms.hadar.utilities import utility_named
from fairlead.model.arrays import IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.errors import UsageError
from fairlead.model.lease import Placement
from fairlead.model.plan import ABSENT
from fairlead.model.snapshot import Snapshot


@dataclass(frozen=True)
class HadarOptions:
    """Options of the auctions of Hadar and HadarE."""

    round_s: float = 360.0
    utility: str = "throughput"
    """utility of finishing a job: throughput (the paper's), normalised, completion, makespan"""
    restart_s: float = 10.0
    """believed cost of a restart for a job that has run before"""
    communication: float = 0.1
    """part of its utility that a gang on very many nodes pays for talking across them"""
    mixed: bool = True
    """whether one gang may have devices of several accelerators"""
    eta: float = 1.0
    """η of Eq. 7: the greater, the lower the first price; at least 1/4"""
    horizon_s: float = 0.0
    """T - now of Eq. 7; 0: Graham's bound on when all jobs are done"""
    reconsider_s: float = 3600.0
    """seconds for which running jobs are left alone while no job arrives or ends"""
    strict: bool = False
    """leave devices idle that no waiting job can pay for, as the prices have it"""
    states: int = 64
    """greatest number of partial solutions that the dynamic programme follows"""
    effort: int = 2048
    """approximate number of (partial solution, job) pairs it examines; bounds the decision time"""

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
    def capabilities(self) -> Capabilities:
        """Mixed gangs where the option ``mixed`` allows them."""
        return Capabilities(mixed_gangs=self.mixed)


_Sale = tuple[Sequence[int] | IntArray, Sequence[int]]
"""places in the queue of those that bought, and cells → devices left"""


class Auction:
    """One decision: the jobs' bids and the devices that are up."""

    def __init__(
        self,
        options: HadarOptions,
        snap: Snapshot,
        *,
        devices: Iterable[int] | None = None,
        held: Mapping[int, Devices] | None = None,
        rows: Sequence[int] | None = None,
    ) -> None:
        """Auction these devices among these rows, by default all; ``held`` is row → devices."""
        self._options = options
        self._snap = snap
        self._rows = range(len(snap.job)) if rows is None else rows
        up = snap.usable.tolist() if devices is None else devices
        self.cells = DeviceCells.of(snap.cluster, up)
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
        self._accelerator_of: list[int] = snap.cluster.accelerator_of.tolist()
        holders = list(self.held)
        self._on: IntArray = np.full(len(snap.job), ABSENT, dtype=np.int64)
        self._on[holders] = snap.on[holders]
        self._single = compiled is not None and snap.profiles.single

    def decide(self, *, again: bool) -> dict[int, Devices]:
        """Return job → devices; ``again``: running jobs may be disturbed where the total gains.

        Waiting jobs get the devices that no job holds ("progressively", §IV-B). If selling all
        devices again is worth more, restarts counted, that plan is returned.
        """
        held = {device for devices in self.held.values() for device in devices}
        kept = {**self.held, **self.fill_idle(self.devices - held)}
        if again and self.held:
            resold = self._sell_all()
            if self.total_worth(resold) > self.total_worth(kept) * (1.0 + 1e-9):
                return resold
        return kept

    def _sell_all(self) -> dict[int, Devices]:
        """Return job → devices when all devices are sold again."""
        free = [len(devices) for devices in self.cells.devices]
        if self._single and self.cells.nodes_differ:
            sold = self._sell_singles(free, self._rows)
            if sold is not None:
                return choose_single_devices(self.cells, sold, self.held, self.devices)
        deals = with_nodes_exchanged(self.cells, self.sell(free, self._rows), self.held)
        return choose_devices(self.cells, deals, self.held, self.devices)

    def fill_idle(self, idle: set[int]) -> dict[int, Devices]:
        """Return waiting job → devices out of the idle ones; running jobs continue."""
        free = [sum(device in idle for device in devices) for devices in self.cells.devices]
        if not any(free):
            return {}
        rows = [row for row in self._rows if row not in self.held]
        sold = self._sell_singles(free, rows) if self._single else None
        if sold is not None:
            return choose_single_devices(self.cells, sold, {}, idle)
        return choose_devices(self.cells, self.sell(free, rows), {}, idle)

    def sell(self, free: Sequence[int], rows: Iterable[int]) -> dict[int, DeviceDeal]:
        """Return row → deal for the free devices.

        Unless the prices are strict, devices that no job can pay for are sold again, as if they
        were the whole cluster and the remaining jobs all its jobs: then no device stays idle that
        a waiting job could use, and every job still pays less than it gains.
        """
        sold: dict[int, DeviceDeal] = {}

        def allocate(market: DeviceMarket, free: Sequence[int], queue: BidQueue) -> _Sale:
            deals = allocate_queue(market, free, queue, width=self._width(queue))
            left, row_of = list(free), queue.row.tolist()
            for place, deal in deals:
                sold[row_of[place]] = deal
                for cell, count in deal.take:
                    left[cell] -= count
            return [place for place, _ in deals], left

        self._sell_by(allocate, free, rows)
        return sold

    def _sell_singles(self, free: Sequence[int], rows: Iterable[int]) -> dict[int, int] | None:
        """Return row → cell as ``sell`` does, by the compiled loop; None if it does not apply."""
        sold: dict[int, int] = {}

        def allocate(market: DeviceMarket, free: Sequence[int], queue: BidQueue) -> _Sale | None:
            singles = allocate_singles(market, free, queue, width=self._width(queue))
            if singles is None:
                return None
            places, cells, _ = singles
            sold.update(zip(queue.row[places].tolist(), cells.tolist(), strict=True))
            left = np.array(free, dtype=np.int64) - np.bincount(cells, minlength=len(free))
            return places, left.tolist()

        return sold if self._sell_by(allocate, free, rows) else None

    def _width(self, queue: BidQueue) -> int:
        return max(1, min(self._options.states, self._options.effort // len(queue)))

    def _sell_by(
        self,
        allocate: Callable[[DeviceMarket, Sequence[int], BidQueue], _Sale | None],
        free: Sequence[int],
        rows: Iterable[int],
    ) -> bool:
        """Sell the free devices, those left over again; return False if they could not be."""
        options = self._options
        queue = self.worth.bids(rows, self._on)
        bidders = self.worth.bidders
        capacity: Sequence[int] = [len(devices) for devices in self.cells.devices]
        while len(queue) and any(free):
            prices = bidders.prices(options.eta)
            market = DeviceMarket(
                self.cells, capacity, prices, options.communication, options.mixed
            )
            sale = allocate(market, free, queue)
            if sale is None:
                return False
            places, left = sale
            if options.strict or not len(places):
                break
            waits = np.ones(len(queue), dtype=bool)
            waits[places] = False
            queue = queue.where(waits)
            bidders = self.worth.bidders.only(queue.row)
            free = capacity = left
        return True

    def speed(self, row: int, devices: Devices) -> float:
        """Return the believed speed of a job on these devices of one node: the slowest decides."""
        speed, accelerator_of = self.worth.speed_lists[row], self._accelerator_of
        if len(devices) == 1:
            return speed[accelerator_of[devices[0]]]
        return min([speed[accelerator_of[device]] for device in devices])

    def total_worth(self, running: Mapping[int, Devices]) -> float:
        """Return what a plan is worth in all: utilities less the cost of communication."""
        total = 0.0
        kept, moved = self.worth.on_one_node
        held, accelerator_of = self.held, self._accelerator_of
        for row, devices in running.items():
            if len(devices) == 1:
                alone = kept if held.get(row) == devices else moved
                total += alone[row][accelerator_of[devices[0]]]
                continue
            nodes = len({self._node_of[device] for device in devices})
            accelerators = {self._accelerator_of[device] for device in devices}
            stays = self.held.get(row) == devices
            utility = self.worth.utility(row, accelerators, one_node=nodes == 1, stays=stays)
            total += utility * (1.0 - self._options.communication * (1.0 - 1.0 / nodes))
        return total

    def placements(self, running: Mapping[int, Devices]) -> list[Placement]:
        """Return a plan's placements."""
        job = self._snap.job.tolist()
        return [Placement(job[row], 0, running[row]) for row in sorted(running)]
