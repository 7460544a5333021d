"""Ground truth of a run, against which the checks compare the server's claims."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from tests.faults.machine.machine import Process

from fairlead.job.copies.part import COPY

CHECKPOINT_S = 2.5
"""seconds between checkpoints of single-member jobs"""


@cache
def chain(steps: int) -> int:
    """Return a number that proves these steps were made once each and in order."""
    value = 0
    for i in range(steps):
        value = (value * 1_103_515_245 + i + 12_345) & 0x7FFF_FFFF
    return value


@dataclass
class CopyTruth:
    """True state of one copy's checkpoint."""

    committed: int = 0
    """steps in the committed checkpoint"""
    committed_by: int = -1
    committed_at: float = 0.0
    fence: int = -1
    value: float = 0.0
    """number in the model"""
    merged: bool = False
    """whether a merged checkpoint of the job has these steps"""


@dataclass
class JobTruth:
    """True state of one job."""

    total: int
    gang: int
    accelerators: Mapping[str, int] | None
    """allowed accelerators → devices needed there; None: its gang on any"""
    train: bool
    """whether it uses the job library"""
    committed: int = 0
    """steps in the committed checkpoint"""
    committed_by: int = -1
    committed_ranks: int = 0
    """number of members with a part in that checkpoint"""
    committed_at: float = 0.0
    fence: int = -1
    counted: float = 0.0
    """steps that the scheduler counts as saved"""
    persisted: float = 0.0
    """the same, as persisted in the store"""
    crashes: int = 0
    """number of injected crashes and failed starts"""
    copies: bool = False
    """whether it may train in copies"""
    value: float = 0.0
    """number in the model of a job that may train in copies; NaN if it is not known"""
    parts: dict[int, CopyTruth] = field(default_factory=dict)
    """lease → part of a copy"""


@dataclass
class RunRecord:
    """Ground truth of the simulated cluster, and the first violation."""

    stop: Callable[[], None]
    now: Callable[[], float]
    violation: str | None = None
    events: int = 0
    truth: dict[str, JobTruth] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    may_be_cancelled: set[str] = field(default_factory=set)
    """jobs with a cancel request; its answer may have been lost"""
    held: set[str] = field(default_factory=set)
    may_be_held: set[str] = field(default_factory=set)
    drained: set[str] = field(default_factory=set)
    cordoned: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    """nodes that an operator has removed"""
    may_be_removed: set[str] = field(default_factory=set)
    down: set[str] = field(default_factory=set)
    """nodes reported to the scheduler as unreachable"""
    down_persisted: set[str] = field(default_factory=set)
    """the same, as persisted in the store"""
    missing: set[str] = field(default_factory=set)
    """nodes absent from the last inventory"""
    undone: Counter[str] = field(default_factory=Counter)
    """job or node → number of resume or return requests"""
    ever_closed: set[str] = field(default_factory=set)
    """nodes that an operator has ever drained or cordoned"""
    taken: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """node → its taken devices, as reported to the scheduler"""
    taken_persisted: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """the same, as persisted in the store"""
    weights: dict[str, float] = field(default_factory=dict)
    live_policy: tuple[str, str] | None = None
    """start-up settings and config of the last live change that was acknowledged"""
    made: dict[int, int] = field(default_factory=dict)
    """lease → steps in the memory of its first rank"""
    disk_was_full: bool = False
    times: dict[int, tuple[str, float, float]] = field(default_factory=dict)
    """lease → job, launch time, end time"""
    touched: set[int] = field(default_factory=set)
    """leases disturbed by a fault"""
    crashed: set[int] = field(default_factory=set)
    """leases with a killed member, unless it was just leaving"""
    died: set[int] = field(default_factory=set)
    """leases of which a member died before any had left"""
    left: set[int] = field(default_factory=set)
    """leases of which a member had left before any died"""
    leaving_gangs: dict[int, dict[int, int]] = field(default_factory=dict)
    """leases whose gangs leave → rank → last step that the rank announced"""
    not_started: dict[int, str] = field(default_factory=dict)
    """leases with a member that failed to start → expected outcome"""
    broken_at: dict[int, float] = field(default_factory=dict)
    """lease → time when the first member of its gang ended prematurely"""
    devices: dict[tuple[str, int], Process] = field(default_factory=dict)
    trace: list[tuple[float, *tuple[object, ...]]] = field(default_factory=list)
    """time, event, and the commands that followed"""

    def require(self, holds: object, problem: str) -> None:
        """Record the first violation and end the run."""
        if not holds and self.violation is None:
            self.violation = f"at {self.now():.3f} s: {problem}"
            self.stop()

    def note(self, *what: object) -> None:
        """Append to the trace that a replay prints."""
        self.trace.append((self.now(), *what))

    def checkpoint_of(self, process: Process) -> JobTruth | CopyTruth:
        """Return the state of the checkpoint that a process writes."""
        assert process.order is not None
        job = self.truth[process.order.job]
        if COPY in process.order.environment:
            return job.parts.setdefault(process.lease, CopyTruth())
        return job

    def touch(self, leases: Iterable[int]) -> None:
        """Mark these leases as disturbed by a fault."""
        self.touched.update(leases)
