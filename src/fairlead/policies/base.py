"""The policy protocol, warm starts, and the parts that all share policies have in common."""

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from fairlead.model.allocation import Allocation, Certificate, Column
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import UsageError
from fairlead.model.snapshot import Snapshot

T = TypeVar("T")


class Policy(Protocol):
    """Computes the share that every job or tenant should have.

    A policy declares its features as ``capabilities`` (``fairlead.model.capabilities``).
    """

    def allocate(self, snap: Snapshot) -> Allocation:
        """Return the shares of the snapshot's jobs or tenants."""
        ...


class WarmStart:
    """Solver state of one planner, by policy; speeds up its next solve.

    A warm and a cold solve agree to about 1e-12 per share.

    Not thread-safe: every planner, explanation and audit has a separate one. Policies are values
    without state, so any number of threads may share one.
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
    """A policy whose solver can start from the last solution, which the caller keeps."""

    def allocate_warm(self, snap: Snapshot, warm: WarmStart) -> Allocation:
        """Return the same as ``allocate``; use and update the caller's solver state."""
        ...


@runtime_checkable
class ValuesDevices(Protocol):
    """A policy that orders all jobs for a device, also those without a share of it."""

    def device_value(self, snap: Snapshot) -> FloatArray:
        """Return jobs × accelerators → value of one device; idle ones go to the greatest first."""
        ...


def allocate(policy: Policy, snap: Snapshot, warm: WarmStart) -> Allocation:
    """Return the policy's shares, from a warm start where the policy supports one."""
    if _is_warm(type(policy)):
        return cast(WarmPolicy, policy).allocate_warm(snap, warm)
    return policy.allocate(snap)


@cache
def _is_warm(policy: type) -> bool:
    """Return whether a class is a WarmPolicy; checking the protocol at every solve is slow."""
    return issubclass(policy, WarmPolicy)


def reject_unit_options(name: str, *, packed: str | None, placement: bool) -> None:
    """Raise UsageError for options of units; ``packed``: the reason, if the option is set."""
    if packed:
        raise UsageError(f"{name}:packed: not supported: {packed}")
    if placement:
        raise UsageError(
            f"{name}:placement: not supported: jobs hold whole devices, which the mechanism"
            " consolidates"
        )


def mean_speed(speed: FloatArray, capacity: IntArray) -> FloatArray:
    """Return rows → speed with an equal share of every device: Gavel's X^equal (§4.1)."""
    total = max(int(capacity.sum()), 1)
    # A plain sum, because a BLAS product may round differently from machine to machine.
    mean: FloatArray = (speed * capacity).sum(axis=1) / total
    return mean


@cache
def accelerator_columns(count: int) -> tuple[Column, ...]:
    """Return one column for each of ``count`` accelerators."""
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
    """Return jobs → steps per second under the shares; with rows of tenants, tenants."""
    if allocation.speed is not None:
        return allocation.speed
    speed: FloatArray = (snap.speed * allocation.share).sum(axis=1)
    return speed
