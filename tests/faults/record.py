"""What has really happened in a run, against which all that is claimed is held."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from tests.faults.machine.machine import Process

CHECKPOINT_S = 2.5
"""how often jobs of one member save their state"""


@cache
def chain(steps: int) -> int:
    """Return a number that only these steps, each made once and in order, lead to."""
    value = 0
    for i in range(steps):
        value = (value * 1_103_515_245 + i + 12_345) & 0x7FFF_FFFF
    return value


@dataclass
class Truth:
    """What has really become of one job."""

    total: int
    gang: int
    accelerators: Mapping[str, int] | None
    """those it may use → devices that it needs there; None: its gang of any"""
    train: bool
    """it uses the library"""
    committed: int = 0
    """steps in the checkpoint in force"""
    committed_by: int = -1
    committed_ranks: int = 0
    """members that have saved their part of it"""
    committed_at: float = 0.0
    fence: int = -1
    counted: float = 0.0
    """steps that the scheduler counts as saved"""
    written: float = 0.0
    """the same, as far as the store has it"""
    crashes: int = 0
    """how often its processes were made to fail, or could not start"""


@dataclass
class Record:
    """The truth as the simulation knows it, and the first promise that it shows to be broken."""

    stop: Callable[[], None]
    now: Callable[[], float]
    violation: str | None = None
    events: int = 0
    truth: dict[str, Truth] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    may_be_cancelled: set[str] = field(default_factory=set)
    """whose cancellation was asked for; the answer may have been lost"""
    held: set[str] = field(default_factory=set)
    may_be_held: set[str] = field(default_factory=set)
    drained: set[str] = field(default_factory=set)
    cordoned: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    """nodes that an operator has given up for good"""
    may_be_removed: set[str] = field(default_factory=set)
    down: set[str] = field(default_factory=set)
    """nodes that the engine does not reach, as far as the scheduler was told"""
    down_written: set[str] = field(default_factory=set)
    """the same, as far as the store holds it"""
    missing: set[str] = field(default_factory=set)
    """nodes that the engine did not have when the scheduler was last told of all"""
    undone: Counter[str] = field(default_factory=Counter)
    """job or node → how often its release or return was asked for"""
    turned: set[str] = field(default_factory=set)
    """nodes that an operator has ever wanted down"""
    taken: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """node → which of its devices others hold, as far as the scheduler was told"""
    taken_written: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """the same, as far as the store holds it"""
    weights: dict[str, float] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=dict)
    """lease → steps in the memory of its first rank"""
    disk_was_full: bool = False
    times: dict[int, tuple[str, float, float]] = field(default_factory=dict)
    """lease → its job, when it was launched, and when it ended"""
    touched: set[int] = field(default_factory=set)
    """leases during whose life something went wrong"""
    crashed: set[int] = field(default_factory=set)
    """leases of which a member was made to die, if it did not leave in that moment"""
    died: set[int] = field(default_factory=set)
    """those of which one did die, before any had left"""
    left: set[int] = field(default_factory=set)
    """leases of which a member had left before any died"""
    parting: dict[int, dict[int, int]] = field(default_factory=dict)
    """leases whose gangs leave → rank → after how many steps, as it has told the others"""
    not_started: dict[int, str] = field(default_factory=dict)
    """leases of which a member could not start → whether the job failed or only is lost"""
    broken_at: dict[int, float] = field(default_factory=dict)
    """lease → when the first member of its gang was gone before its time"""
    devices: dict[tuple[str, int], Process] = field(default_factory=dict)
    trace: list[tuple[float, *tuple[object, ...]]] = field(default_factory=list)
    """what happened, and what followed from it"""

    def require(self, holds: object, problem: str) -> None:
        """Note the first violation and end the run."""
        if not holds and self.violation is None:
            self.violation = f"at {self.now():.3f} s: {problem}"
            self.stop()

    def note(self, *what: object) -> None:
        """Remember what happened, for whoever replays this run."""
        self.trace.append((self.now(), *what))

    def touch(self, leases: Iterable[int]) -> None:
        """Note that something went wrong for these leases."""
        self.touched.update(leases)
