"""Who should get what: the answer of a policy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.speeds.table import Placement
from fairlead.model.value import value


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """Why no allocation does better: a bound that can be recomputed from the prices alone.

    ``prices`` (accelerators) value one device for the whole time; ``bound`` is what no feasible
    allocation exceeds; ``gap`` is how far the allocation stays below it, relative to it.
    """

    prices: FloatArray
    bound: float
    gap: float


class Column(NamedTuple):
    """What a share is a share of: one accelerator, possibly in one placement only.

    Consolidated and spread columns of one accelerator share its one capacity.
    """

    accelerator: int
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class Trade:
    """Devices that one tenant gave another for others, and what set the price.

    The ``seller`` gives ``slow_devices`` of the accelerator ``slow`` for ``fast_devices`` of
    ``fast``; ``price`` is the one over the other. ``second`` is the tenant whose bid set it,
    None where there was no second bidder and the surplus was split.
    """

    seller: str
    buyer: str
    fast: str
    slow: str
    fast_devices: float
    slow_devices: float
    price: float
    second: str | None
    why: str


@dataclass(frozen=True, slots=True)
class MissedDeadline:
    """A job that no allocation here can bring to its deadline in time."""

    job: str
    needed: float
    """steps per second from now on that the deadline asks for"""
    given: float
    """steps per second that it gets"""


@value
class Allocation:
    """The share of each column that each row should have until the next allocation.

    With ``rows="jobs"`` a row is a unit: its ``members`` are job numbers, padded with -1 where a
    unit has fewer jobs than another. With ``rows="tenants"`` a row is a tenant (members are its
    index) and a job-level mechanism divides it. ``measure="time"`` counts the fraction of time
    that the unit runs; ``measure="devices"`` the devices held on average.
    """

    members: IntArray
    share: FloatArray
    columns: tuple[Column, ...]
    rows: Literal["jobs", "tenants"] = "jobs"
    measure: Literal["time", "devices"] = "time"
    speed: FloatArray | None = None
    """jobs in the snapshot's order → effective steps per second, where it is more than the
    share-weighted speed; with rows of tenants, tenants → normalised speed"""
    worth: Callable[[], float] | None = None
    """computes the objective"""
    prove: Callable[[], Certificate] | None = None
    """makes the certificate; like the objective only when somebody asks, which rounds do not"""
    trades: tuple[Trade, ...] = ()
    """devices that changed hands, in order"""
    late: tuple[MissedDeadline, ...] = ()
    """jobs whose deadlines cannot be met"""

    @property
    def objective(self) -> float | None:
        """What the policy has reached of what it maximises or minimises, if that is a number."""
        return None if self.worth is None else self.worth()
