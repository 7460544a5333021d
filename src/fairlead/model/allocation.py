"""Allocations: the shares that policies compute."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.speeds.table import Consolidation
from fairlead.model.value import value


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """Proof of optimality: a bound that can be recomputed from the prices alone.

    ``prices`` (accelerators) value one device for the whole time. No feasible allocation exceeds
    ``bound``; ``gap`` is the relative distance of the allocation from it.
    """

    prices: FloatArray
    bound: float
    gap: float


class Column(NamedTuple):
    """A column of shares: one accelerator, possibly in one placement only.

    Consolidated and spread columns of one accelerator share its one capacity.
    """

    accelerator: int
    placement: Consolidation | None = None


@dataclass(frozen=True, slots=True)
class Trade:
    """An exchange of devices between two tenants, and the origin of its price.

    The ``seller`` gives ``slow_devices`` of the accelerator ``slow`` for ``fast_devices`` of
    ``fast``; ``price`` is their ratio. ``second`` is the tenant whose bid set the price, None
    where there was no second bidder and the surplus was split.
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
    """A job that misses its deadline under every allocation."""

    job: str
    needed: float
    """steps per second needed from now on to meet the deadline"""
    given: float
    """steps per second under the allocation"""


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
    """jobs in the snapshot's order → effective steps per second, where these exceed the
    share-weighted speed; with rows of tenants, tenants → normalised speed"""
    worth: Callable[[], float] | None = None
    """computes the objective"""
    prove: Callable[[], Certificate] | None = None
    """computes the certificate; rounds ask for neither it nor the objective"""
    trades: tuple[Trade, ...] = ()
    """devices that changed hands, in order"""
    late: tuple[MissedDeadline, ...] = ()
    """jobs whose deadlines cannot be met"""

    @property
    def objective(self) -> float | None:
        """The value of the policy's objective, if that is a number."""
        return None if self.worth is None else self.worth()
