"""What a policy promises, and what all share policies have in common."""

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from fairlead.model.allocation import Allocation, Certificate, Column
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import UsageError
from fairlead.model.snapshot import Snapshot

T = TypeVar("T")


class Policy(Protocol):
    """Decides who should get what share.

    A policy that never looks at the steps jobs have made says so by ``reads_progress = False``;
    its shares then stand until jobs or devices change, and nobody need report progress for it.
    One that looks at those of jobs with a deadline only says so by
    ``reads_progress_without_deadline = False``; others need every job's length.
    One that minds that a job may need other numbers of devices on other accelerators
    (``snap.gang_on``) says so by ``takes_alternatives = True``; others are not asked about such.
    One under which tenants' weights count says so by ``divides_among_tenants = True``; others
    look at jobs' own weights, if at any.
    """

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the shares this policy wants for the snapshot's jobs."""
        ...


class WarmStart:
    """Solver state of one planner, by policy; speeds up its next solve and changes no result.

    Not thread-safe: every planner, explanation and audit owns its own. Policies are values and
    keep nothing themselves, so that any number of threads may share one.
    """

    def __init__(self) -> None:
        self._states: dict[Hashable, Any] = {}

    def state(self, policy: Hashable, create: Callable[[], T]) -> T:
        """Return the state of ``policy``, created at its first use; equal policies share it."""
        state: T | None = self._states.get(policy)
        if state is None:
            state = self._states[policy] = create()
        return state


@runtime_checkable
class WarmPolicy(Protocol):
    """A policy whose solver starts from its last answer, where the caller kept it."""

    def allocate_warm(self, snap: Snapshot, warm: WarmStart) -> Allocation:
        """Return what ``allocate`` returns, using and updating the caller's solver state."""
        ...


def allocate(policy: Policy, snap: Snapshot, warm: WarmStart) -> Allocation:
    """Return the policy's shares, from a warm start where the policy supports one."""
    if isinstance(policy, WarmPolicy):
        return policy.allocate_warm(snap, warm)
    return policy.allocate(snap)


def reject_unit_options(name: str, *, packed: str | None, placement: bool) -> None:
    """Refuse the options of units for a policy of whole devices; ``packed``: why not, if asked."""
    if packed:
        raise UsageError(f"{name}:packed: {packed}")
    if placement:
        raise UsageError(
            f"{name}:placement: jobs hold whole devices, and the mechanism consolidates them"
        )


def mean_speed(speed: FloatArray, capacity: IntArray) -> FloatArray:
    """Return each row's speed with an equal share of every device: Gavel's X^equal (§4.1)."""
    total = max(int(capacity.sum()), 1)
    # A plain sum: a BLAS product may round differently from one machine to the next.
    mean: FloatArray = (speed * capacity).sum(axis=1) / total
    return mean


@cache
def accelerator_columns(count: int) -> tuple[Column, ...]:
    """Return one column for each of so many accelerators."""
    return tuple(Column(j) for j in range(count))


def job_allocation(
    snap: Snapshot,
    share: FloatArray,
    *,
    worth: Callable[[], float] | None = None,
    prove: Callable[[], Certificate] | None = None,
) -> Allocation:
    """Return the allocation that gives each of the snapshot's jobs its row of shares."""
    return Allocation(
        members=snap.job.reshape(-1, 1),
        share=share,
        columns=accelerator_columns(len(snap.capacity)),
        worth=worth,
        prove=prove,
    )


def empty_allocation(snap: Snapshot) -> Allocation:
    """Return the allocation of a snapshot without jobs, which has no objective."""
    return job_allocation(snap, np.zeros((0, len(snap.capacity))))


def effective_speed(snap: Snapshot, allocation: Allocation) -> FloatArray:
    """Return jobs → steps per second that the shares give; with rows of tenants, tenants."""
    if allocation.speed is not None:
        return allocation.speed
    speed: FloatArray = (snap.speed * allocation.share).sum(axis=1)
    return speed
