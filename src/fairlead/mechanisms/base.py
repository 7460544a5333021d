"""What a mechanism promises."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from fairlead.model.arrays import IntArray
from fairlead.model.job import Tenant
from fairlead.model.lease import Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import WarmStart

M = TypeVar("M")


class Mechanism(Protocol[M]):
    """Decides what runs, round by round; all it remembers is the value it returns.

    One that looks at what jobs measure of themselves (``snap.measured``) says so by
    ``reads_measured = True``. One that promises that every job which can run does so again and
    again says so by ``starves_nobody = True``, and the conformance suite holds it to that. One
    that starts copies of jobs, which have to be merged, says so by ``forks = True``. One that
    gives a gang devices of several accelerators says so by ``mixes_accelerators = True``: gangs
    larger than any one accelerator's devices are then accepted. One that gives a job the number
    of devices that it needs on each accelerator (``snap.gang_on``) says so by
    ``takes_alternatives = True``: jobs that need other numbers on other accelerators are then
    accepted. One that decides by itself what runs, and under which tenants' weights count, says
    so by ``divides_among_tenants = True``; where it realises a policy's shares, the policy does.
    """

    def initial(self) -> M:
        """Return the memory before the first plan."""
        ...

    def plan(self, snap: Snapshot, memory: M) -> tuple[Plan, M]:
        """Return what runs from the snapshot's start on, and what to remember."""
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
class Trades(Protocol):
    """A mechanism under which tenants trade devices, and that remembers who did."""

    def trades(
        self, memory: Any, tenants: Sequence[Tenant], accelerators: Sequence[str]
    ) -> list[dict[str, object]]:
        """Return the trades made and undone, oldest first."""
        ...


@runtime_checkable
class Fluid(Protocol):
    """A mechanism that gives fractions of devices: simulation only, no plan of devices."""

    fluid: bool


def gang_capabilities(mechanism: Mechanism[Any]) -> dict[str, bool]:
    """Return which gangs are accepted: ``mixes`` and ``alternatives`` of a job table."""
    return {
        "mixes": bool(getattr(mechanism, "mixes_accelerators", False)),
        "alternatives": bool(getattr(mechanism, "takes_alternatives", False)),
    }
