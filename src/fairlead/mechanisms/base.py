"""Contracts of mechanisms."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.lease import Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.base import Policy, WarmStart

M = TypeVar("M")


class Mechanism(Protocol[M]):
    """Plans round by round; the value it returns is all that it remembers.

    It declares its features as ``capabilities`` (``fairlead.model.capabilities``); a mechanism
    that realises a policy forwards those of the policy.
    """

    def initial(self) -> M:
        """Return the memory before the first plan."""
        ...

    def plan(self, snap: Snapshot, memory: M) -> tuple[Plan, M]:
        """Return the plan from the snapshot's start on, and the memory after it."""
        ...


@runtime_checkable
class RealisesPolicy(Protocol):
    """A mechanism (or a policy around another one) whose shares come from a policy."""

    @property
    def policy(self) -> Policy:
        """The policy that computes the shares."""
        ...


@runtime_checkable
class HasRounds(Protocol):
    """A mechanism that decides in rounds of equal length."""

    @property
    def round_s(self) -> float:
        """Seconds between two decisions."""
        ...


@runtime_checkable
class ForksDeclaredJobs(Protocol):
    """A mechanism that starts several copies of a job, and can leave out unprepared jobs."""

    def forking_declared_jobs(self) -> "Mechanism[Any]":
        """Return the same mechanism, forking only jobs that declare ``max_copies``."""
        ...


@runtime_checkable
class WarmMechanism(Protocol):
    """A mechanism that asks a policy, whose solver may start from its last answer."""

    def plan_warm(self, warm: WarmStart, snap: Snapshot, memory: Any) -> tuple[Plan, Any]:
        """Return what ``plan`` returns, using and updating the planner's solver state."""
        ...


@runtime_checkable
class SupportsRefill(Protocol):
    """A mechanism that lets waiting jobs use devices that fall idle within a round."""

    def refill(self, snap: Snapshot, memory: Any, idle: IntArray) -> Placements:
        """Return waiting jobs to start on some of the idle devices; solves nothing."""
        ...


@runtime_checkable
class RefillsByWaitingJobs(Protocol):
    """A mechanism whose refills may depend on nothing but the jobs that wait."""

    @property
    def refill_ignores_running(self) -> bool:
        """Whether the snapshot for a refill may leave out the jobs that hold devices."""
        ...


@runtime_checkable
class RefillsFromCandidates(RefillsByWaitingJobs, Protocol):
    """A mechanism that prefers some jobs for idle devices, and knows them before the snapshot.

    With many waiting jobs a snapshot of the candidates alone is a small part of the work.
    """

    def refill_candidates(self, memory: Any, idle: BoolArray) -> IntArray:
        """Return the jobs, ascending, that come first for devices of these accelerators.

        Jobs that run or have ended may be among them.
        """
        ...

    def refill_from_candidates(
        self, snap: Snapshot, memory: Any, idle: IntArray
    ) -> Placements | None:
        """Return the refill from a snapshot of waiting candidates; None if others could follow.

        A refill that it returns is the same as ``refill`` with all waiting jobs in the snapshot;
        a class that overrides one of them overrides both.
        """
        ...


@runtime_checkable
class RepeatsRounds(HasRounds, Protocol):
    """A mechanism that knows when rounds leave all leases as they are until something changes."""

    def repeated_rounds(
        self, snap: Snapshot, memory: Any
    ) -> Callable[[FloatArray, FloatArray], tuple[int, Any]] | None:
        """Return the memory after further rounds as a function; None if a plan may differ.

        ``memory`` is that after the plan for ``snap``, which started and stopped no job. The
        function takes the rounds' starts and rounds × running jobs × accelerators → time received.
        It returns how many of the rounds leave all leases as they are, and the memory after
        these: the same as if they were planned one by one.
        """
        ...


class Turn(NamedTuple):
    """One round in which jobs of one device take turns; rows are those of the snapshot."""

    stop: IntArray
    """rows whose leases end, in the order of their devices"""
    start: IntArray
    """rows that start"""
    device: IntArray
    """starting rows → device"""
    memory: Any
    """the mechanism's memory after the round"""


class Measured(NamedTuple):
    """Measurements of running jobs at the start of a round; columns over these."""

    row: IntArray
    steps_per_s: FloatArray
    utilization: FloatArray
    memory_gib: FloatArray


class Turns(Protocol):
    """Rounds that follow one another while nothing changes but the time that jobs receive."""

    def next_turn(
        self, at: float, received_s: FloatArray, measured: Measured | None
    ) -> Turn | None:
        """Return what a plan at this time would decide; None if it has to be planned.

        ``received_s`` is rows × accelerators. ``measured`` is None for mechanisms that do not
        read measurements. After None, and if a turn is not taken, ask no more.
        """
        ...


@runtime_checkable
class TakesTurns(HasRounds, Protocol):
    """A mechanism that knows when jobs of one device only take turns until something changes."""

    def turn_rounds(
        self, warm: WarmStart, snap: Snapshot, memory: Any, device: IntArray
    ) -> Turns | None:
        """Return the rounds after a plan; None if other decisions may follow.

        ``memory`` is that after the plan for ``snap``, and ``device`` is rows → the device held
        since, -1 for none. No two jobs share a device.
        """
        ...


@runtime_checkable
class ResizesGangs(Protocol):
    """A mechanism that lets elastic jobs grow and shrink, and can name the reason."""

    def gang_reason(self, snap: Snapshot, memory: Any, job: int) -> str:
        """Return why a running elastic job has its present size; empty for all other jobs."""
        ...


@runtime_checkable
class SupportsTrades(Protocol):
    """A mechanism under which tenants trade devices, and that remembers who did."""

    def trades(
        self, memory: Any, tenants: Sequence[Tenant], accelerators: Sequence[str]
    ) -> list[dict[str, object]]:
        """Return the trades made and undone, oldest first."""
        ...


@runtime_checkable
class FluidMechanism(Protocol):
    """A mechanism that gives fractions of devices: simulation only, no plan of devices."""

    fluid: bool
