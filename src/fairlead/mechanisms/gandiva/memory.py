"""Facts about jobs that Gandiva measures or remembers from plan to plan."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import ClassVar

import numpy as np

from fairlead.model.arrays import NO_INTS, FloatArray, IntArray
from fairlead.model.snapshot import Snapshot

Rank = tuple[float, float]
"""a tenant's priority and a job's own; the greater one comes first"""
Home = dict[int, int]
"""server → devices of it; empty while a job has no home"""
HomeItems = tuple[tuple[int, int], ...]
"""the same as pairs"""


@dataclass(slots=True, eq=False)
class GandivaJob:
    """One job while a plan is made; a memory keeps the fields from ``pass_s`` on."""

    row: int
    job: int
    floor: int
    """the least devices it can do with: its gang, unless it is declared elastic"""
    gang: int
    ceiling: int
    """the most devices it can use"""
    weight: float
    rank: Rank
    lease: int
    pass_s: float = 0.0
    """time received over weight; the least is served next"""
    received_s: float = 0.0
    """total time received, as of the last plan"""
    shared_weight: float = 1.0
    """weight of the unit in which it ran last"""
    size: float = 0.0
    """devices it was given last"""
    accelerator: float = -1.0
    """accelerator to which ``best_speed`` belongs"""
    best_speed: float = math.nan
    """most steps per second measured there, alone and in one server, at its own size"""
    current_speed: float = math.nan
    """steps per second measured last"""
    utilization: float = math.nan
    """measured alone"""
    memory_gib: float = math.nan
    """measured alone"""
    moved_at: float = -math.inf
    """time of its last move away from interference"""
    apart: float = 0.0
    """1 after such a move, so that no job is moved back beside it"""
    failures: float = 0.0
    """packings of it that were undone"""
    enough: float = math.inf
    """size beyond which growing was measured to be of no use"""
    grown_from: float = 0.0
    """its size before it last grew"""
    speed_before: float = math.nan
    """steps per second at that size"""

    @property
    def elastic(self) -> bool:
        """Whether it is declared to grow and shrink."""
        return self.floor < self.ceiling


_FIELDS = [part.name for part in fields(GandivaJob)]
KEPT = tuple(_FIELDS[_FIELDS.index("pass_s") :])
"""fields of a task that a memory keeps, in order"""
_GIVEN = attrgetter(*KEPT)
_JOB = attrgetter("job")
_NEW = np.array([part.default for part in fields(GandivaJob) if part.name in KEPT])
"""the kept fields of a new job"""
_PASS, _RECEIVED, _WEIGHT = map(KEPT.index, ("pass_s", "received_s", "shared_weight"))
_ENOUGH, _GROWN_FROM = map(KEPT.index, ("enough", "grown_from"))
_MAX_HIDDEN = 256
"""jobs without a row in the snapshot whose growth is remembered: those that ended do not return"""


@dataclass(slots=True, eq=False)
class GandivaUnit:
    """Jobs on the same devices, most often one, and their home."""

    tasks: list[GandivaJob]
    home: Home = field(default_factory=dict)
    total: float = math.nan
    """measured speeds of its jobs, each over its speed alone, added up; NaN while unknown"""
    joined: int = 0
    """number of its jobs, counted from the last, that are packed on trial"""
    minimum_speed: float = 0.0
    """total speed that the trial has to exceed"""

    @property
    def job(self) -> int:
        """The number of its first job."""
        return self.tasks[0].job

    @property
    def need(self) -> int:
        """The least number of devices it needs."""
        return self.tasks[0].floor

    @property
    def rank(self) -> Rank:
        """The highest rank of its jobs."""
        if len(self.tasks) == 1:
            return self.tasks[0].rank
        return max(task.rank for task in self.tasks)

    @property
    def weight(self) -> float:
        """The weights of its jobs together: packed, they get the time that they had apart."""
        return sum(task.weight for task in self.tasks)

    @property
    def pass_s(self) -> float:
        """The mean pass of its jobs."""
        if len(self.tasks) == 1:
            return self.tasks[0].pass_s
        return sum(task.pass_s for task in self.tasks) / len(self.tasks)

    @property
    def utilization(self) -> float:
        """The sum of its jobs' utilisations, each measured alone."""
        return sum(task.utilization for task in self.tasks)

    @property
    def memory_gib(self) -> float:
        """The sum of its jobs' memory; jobs that reported none count as 0."""
        return sum(0.0 if math.isnan(t.memory_gib) else t.memory_gib for t in self.tasks)


@dataclass(frozen=True, slots=True, eq=False)
class GandivaMemory:
    """Facts that Gandiva keeps from one plan to the next."""

    WIRE_NAME: ClassVar[str] = "Memory"

    at: float
    changes: int
    """the snapshot's count of changes at the last plan"""
    job: IntArray
    facts: FloatArray
    """jobs × kept fields"""
    units: tuple[tuple[int, ...], ...]
    """the jobs of every unit that has a home"""
    homes: tuple[HomeItems, ...]
    """units → servers and how many devices of each"""
    trials: FloatArray
    """units × (total speed, jobs on trial, total speed to exceed)"""
    failed: tuple[tuple[int, int], ...]
    """pairs of jobs whose packing was undone, the smaller number first"""
    load: IntArray
    """servers → devices wanted there"""
    changed_at: FloatArray
    """servers → time of its last change"""

    @classmethod
    def empty(cls) -> "GandivaMemory":
        """Return the memory before the first plan."""
        none = np.zeros((0, len(KEPT)))
        return cls(-math.inf, -1, NO_INTS, none, (), (), np.zeros((0, 3)), (), NO_INTS, none[:, 0])

    @classmethod
    def of(
        cls,
        snap: Snapshot,
        units: Sequence[GandivaUnit],
        failed: Iterable[tuple[int, int]],
        load: IntArray,
        changed_at: FloatArray,
    ) -> "GandivaMemory":
        """Return the memory after a plan."""
        tasks = [task for unit in units for task in unit.tasks]
        tasks.sort(key=_JOB)
        facts = list(map(_GIVEN, tasks))
        homed = [unit for unit in units if unit.home]
        trials = [(unit.total, unit.joined, unit.minimum_speed) for unit in homed]
        there = set(snap.job.tolist())
        return cls(
            snap.starts_at,
            snap.changes,
            np.array([task.job for task in tasks], dtype=np.int64),
            np.array(facts, dtype=np.float64).reshape(len(tasks), len(KEPT)),
            tuple([tuple(map(_JOB, unit.tasks)) for unit in homed]),
            tuple([_sorted_items(unit.home) for unit in homed]),
            np.array(trials, dtype=np.float64).reshape(len(homed), 3),
            tuple(sorted([pair for pair in failed if pair[0] in there and pair[1] in there])),
            load,
            changed_at,
        )

    def with_hidden(self, before: "GandivaMemory") -> "GandivaMemory":
        """Return the memory with the facts of jobs that have grown and that a plan did not see.

        A pinned lease hides its job, as that of a job that starts on more devices.
        """
        if not len(before.job):
            return self
        grew = (before.facts[:, _GROWN_FROM] > 0) | np.isfinite(before.facts[:, _ENOUGH])
        hidden = (grew & ~np.isin(before.job, self.job)).nonzero()[0][-_MAX_HIDDEN:]
        if not len(hidden):
            return self
        job = np.concatenate([self.job, before.job[hidden]])
        order = job.argsort()
        facts = np.concatenate([self.facts, before.facts[hidden]])[order]
        return replace(self, job=job[order], facts=facts)

    @property
    def has_grown_jobs(self) -> bool:
        """Whether a job has grown, so that its facts are kept while a plan does not see it."""
        grew = (self.facts[:, _GROWN_FROM] > 0) | np.isfinite(self.facts[:, _ENOUGH])
        return bool(grew.any())

    def facts_of(self, jobs: IntArray, received_s: FloatArray) -> FloatArray:
        """Return jobs × kept fields, up to date with the time that each has received by now."""
        if np.array_equal(jobs, self.job):
            facts = self.facts.copy()
            since = np.maximum(received_s - facts[:, _RECEIVED], 0.0)
            facts[:, _PASS] += since / facts[:, _WEIGHT]
            facts[:, _RECEIVED] = received_s
            return facts
        facts = np.empty((len(jobs), len(_NEW)))
        facts[:] = _NEW
        if len(self.job):
            place = np.minimum(self.job.searchsorted(jobs), len(self.job) - 1)
            known = self.job[place] == jobs
            facts[known] = self.facts[place[known]]
            # A delayed suspend counts like any other time held (§4.1).
            since = np.maximum(received_s[known] - facts[known, _RECEIVED], 0.0)
            facts[known, _PASS] += since / facts[known, _WEIGHT]
        facts[:, _RECEIVED] = received_s
        return facts


def _sorted_items(home: Home) -> HomeItems:
    return tuple(home.items()) if len(home) == 1 else tuple(sorted(home.items()))


def tasks_of(
    snap: Snapshot, memory: GandivaMemory, rows: IntArray | None = None
) -> dict[int, GandivaJob]:
    """Return job → task for the snapshot's jobs, or those of ``rows``, with remembered facts."""
    profiles = snap.profiles
    gang, weight = profiles.gang.tolist(), profiles.weight.tolist()
    least = gang if profiles.min_gang is None else profiles.min_gang.tolist()
    most = gang if profiles.max_gang is None else profiles.max_gang.tolist()
    of_tenant = [tenant.priority for tenant in snap.tenants]
    tenant = profiles.tenant.tolist()
    rows = np.arange(len(snap.job)) if rows is None else rows
    columns = zip(
        rows.tolist(),
        snap.job[rows].tolist(),
        snap.profile[rows].tolist(),
        snap.precedence[rows].tolist(),
        snap.lease[rows].tolist(),
        memory.facts_of(snap.job[rows], snap.received_s.sum(axis=1)[rows]).tolist(),
        strict=True,
    )
    return {
        job: GandivaJob(
            *(row, job, least[p], gang[p], most[p], weight[p]),
            *((of_tenant[tenant[p]], precedence), lease, *facts),
        )
        for row, job, p, precedence, lease, facts in columns
    }


def new_measurements(
    snap: Snapshot, memory: GandivaMemory
) -> dict[int, tuple[float, float, float]]:
    """Return job → speed, utilisation and memory that it has measured since the last plan."""
    measured = snap.measured
    if measured is None:
        return {}
    new = (measured.lease == snap.lease) & (snap.lease >= 0) & (measured.at > memory.at)
    rows = new.nonzero()[0]
    columns = (measured.steps_per_s, measured.utilization, measured.memory_gib)
    values = zip(*(column[rows].tolist() for column in columns), strict=True)
    return dict(zip(snap.job[rows].tolist(), values, strict=True))
