"""What a mechanism promises."""

from typing import Any, Protocol, TypeVar, runtime_checkable

from fairlead.model.arrays import IntArray
from fairlead.model.lease import Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot

M = TypeVar("M")


class Mechanism(Protocol[M]):
    """Decides what runs, round by round; all it remembers is the value it returns."""

    def initial(self) -> M:
        """Return the memory before the first plan."""
        ...

    def plan(self, snap: Snapshot, memory: M) -> tuple[Plan, M]:
        """Return what runs from the snapshot's start on, and what to remember."""
        ...


@runtime_checkable
class Refills(Protocol):
    """A mechanism that lets waiting jobs use devices that fall idle within a round."""

    def refill(self, snap: Snapshot, memory: Any, idle: IntArray) -> Placements:
        """Return waiting jobs to start on some of the idle devices; solves nothing."""
        ...


@runtime_checkable
class Fluid(Protocol):
    """A mechanism that gives fractions of devices: simulation only, no plan of devices."""

    fluid: bool
