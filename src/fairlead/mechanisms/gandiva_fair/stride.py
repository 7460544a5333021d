"""Gang-aware stride and its split over nodes (Gandiva_fair §3.1, Algorithm 1), as plain values.

A job's *pass* is the virtual time at which it is due next; each quantum that it runs moves its
pass on by its *stride*, gang / tickets. The job that is due first runs first. Each node has its
own scheduler, a ``NodeStride``; ``CentralStride`` only decides which gangs that span nodes run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fairlead.mechanisms._tickets.pass_ranks import pass_ranks
from fairlead.model.arrays import FloatArray, IntArray

TIE = 9
"""decimals to which equal passes agree: sums of strides carry rounding errors"""


def gang_aware_stride(passes: Sequence[float], gang: Sequence[int], devices: int) -> list[int]:
    """Return the entries that Algorithm 1 runs on these devices: least pass first, if they fit.

    Of equal passes the smaller gang comes first, then the earlier entry. An entry that does not
    fit keeps its pass, so that it comes first in the next quantum.
    """
    order = sorted(range(len(gang)), key=lambda i: (round(passes[i], TIE), gang[i], i))
    return _fitting(order, gang, devices)


def _fitting(order: Iterable[int], gang: Sequence[int], devices: int) -> list[int]:
    """Return the entries that fit on the devices, each after those before it in the order."""
    chosen = []
    for i in order:
        if gang[i] <= devices:
            chosen.append(i)
            devices -= gang[i]
            if not devices:
                break
    return chosen


@dataclass(frozen=True, slots=True, eq=False)
class SiteStrides:
    """The schedulers of all sites' small jobs at once, as ``NodeStride`` is that of one."""

    row: IntArray
    """small jobs → row"""
    site: IntArray
    gang: IntArray
    parts: tuple[tuple[int, int, int, bool], ...]
    """sites in the order of their first rows: where its jobs begin and end when sorted by site,
    its devices, and whether each of its jobs needs just one"""

    @classmethod
    def of(cls, home: IntArray, gang: IntArray, size: IntArray) -> "SiteStrides":
        """Return the schedulers, given rows → home and gang, and sites → devices."""
        row = (home >= 0).nonzero()[0]
        sites, first, count = np.unique(home[row], return_index=True, return_counts=True)
        end = count.cumsum()
        single = np.maximum.reduceat(gang[row][home[row].argsort(kind="stable")], end - count) == 1
        columns = ((end - count).tolist(), end.tolist(), size[sites].tolist(), single.tolist())
        parts = list(zip(*columns, strict=True))
        order = first.argsort().tolist()
        return cls(row, home[row], gang[row], tuple(parts[i] for i in order))

    def choose(self, passes: FloatArray) -> list[int]:
        """Return the rows that run this quantum, given rows → pass: Algorithm 1 on every site."""
        at = passes[self.row]
        order = np.lexsort((self.gang, pass_ranks(at, TIE), self.site))
        chosen: list[int] = []
        for begin, end, devices, single in self.parts:
            here = order[begin:end]
            if not single:
                gang: list[int] = self.gang[here].tolist()
                here = here[_fitting(range(len(gang)), gang, devices)]
            chosen += self.row[here[:devices]].tolist()
        return chosen


@dataclass(frozen=True, slots=True)
class NodeStride:
    """The scheduler of one node's small jobs; columns over these."""

    devices: int
    job: tuple[int, ...] = ()
    gang: tuple[int, ...] = ()
    tickets: tuple[float, ...] = ()
    passes: tuple[float, ...] = ()

    @property
    def due(self) -> float:
        """The least pass, at which new jobs join; 0 without jobs."""
        return min(self.passes, default=0.0)

    @property
    def demand(self) -> int:
        """Devices that its jobs can use at once."""
        return sum(self.gang)

    def joined(self, job: int, gang: int, tickets: float, late: float = 0.0) -> "NodeStride":
        """Return the scheduler with one more job, due when the first of the others is.

        ``late`` is by how many of its strides it is due after that: 0 unless it comes from
        another node, where it has run ahead.
        """
        at = self.due + late * gang / tickets
        return replace(
            self,
            job=(*self.job, job),
            gang=(*self.gang, gang),
            tickets=(*self.tickets, tickets),
            passes=(*self.passes, at),
        )

    def without(self, job: int) -> "NodeStride":
        """Return the scheduler without this job."""
        keep = [i for i, mine in enumerate(self.job) if mine != job]
        return NodeStride(
            self.devices,
            tuple(self.job[i] for i in keep),
            tuple(self.gang[i] for i in keep),
            tuple(self.tickets[i] for i in keep),
            tuple(self.passes[i] for i in keep),
        )

    def choose(self, devices: int | None = None) -> tuple[int, ...]:
        """Return the jobs that run this quantum on ``devices``, by default all."""
        free = self.devices if devices is None else devices
        return tuple(self.job[i] for i in gang_aware_stride(self.passes, self.gang, free))

    def charged(self, ran: Iterable[int], quanta: float = 1.0) -> "NodeStride":
        """Return the scheduler after these jobs have run for ``quanta``."""
        paid = set(ran)
        passes = tuple(
            at + quanta * gang / tickets if job in paid else at
            for job, gang, tickets, at in zip(
                self.job, self.gang, self.tickets, self.passes, strict=True
            )
        )
        return replace(self, passes=passes)


@dataclass(frozen=True, slots=True)
class LargeJob:
    """A job whose gang spans nodes: its devices on each, and its pass."""

    job: int
    needs: Mapping[int, int]
    """node → devices"""
    due: float

    @property
    def gang(self) -> int:
        """Devices that it needs at once."""
        return sum(self.needs.values())


@dataclass(frozen=True, slots=True)
class Aggregate:
    """All small jobs of one node, which the central scheduler treats as one."""

    node: int
    demand: int
    """devices that they can use at once"""
    due: float


@dataclass(frozen=True, slots=True)
class CentralStride:
    """The scheduler of large jobs, among which every node's small jobs count as one job."""

    room: Mapping[int, int]
    """node → devices"""
    large: tuple[LargeJob, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()

    def choose(self) -> "CentralDecision":
        """Return the decision for this quantum: Algorithm 1 over large jobs and aggregates.

        An aggregate takes what is free on its node, as far as its jobs can use it; the rest may
        go to a large job that is due later.
        """
        free = dict(self.room)
        turn = CentralDecision()
        entries: list[LargeJob | Aggregate] = [*self.aggregates, *self.large]
        for entry in sorted(entries, key=_by_pass):
            if isinstance(entry, Aggregate):
                taken = min(entry.demand, free[entry.node])
                turn.left[entry.node] = taken
                free[entry.node] -= taken
            elif all(free[node] >= count for node, count in entry.needs.items()):
                turn.large.append(entry.job)
                for node, count in entry.needs.items():
                    free[node] -= count
        return turn


@dataclass(frozen=True, slots=True)
class CentralDecision:
    """The central scheduler's decision for one quantum."""

    large: list[int] = field(default_factory=list)
    """large jobs that run"""
    left: dict[int, int] = field(default_factory=dict)
    """node → devices on which it runs its own choice of small jobs"""


def _by_pass(entry: LargeJob | Aggregate) -> tuple[float, int, int]:
    """Return the order of entries: by pass, then small jobs, then by job or node."""
    if isinstance(entry, Aggregate):
        return round(entry.due, TIE), 0, entry.node
    return round(entry.due, TIE), entry.gang, entry.job
