"""Validation of allocations: shares that no cluster could give are rejected."""

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray, is_among
from fairlead.model.errors import UsageError
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import accelerator_columns

_SLACK = 1e-6
"""relative error allowed to a solver"""


def check_allocation(name: str, snap: Snapshot, allocation: Allocation) -> None:
    """Raise UsageError for shares that are negative, not finite, or exceed time or devices.

    The error names the policy and a job or tenant with such a share.
    """
    if not (
        isinstance(allocation, Allocation)
        and isinstance(allocation.share, np.ndarray)
        and isinstance(allocation.members, np.ndarray)
    ):
        raise UsageError(
            f"policy {name!r}: not an allocation: {allocation!r:.200}: expected an Allocation"
            " with arrays of shares and members"
        )
    if not _is_plain_and_feasible(snap, allocation):
        _check_each_rule(name, snap, allocation)


def _is_plain_and_feasible(snap: Snapshot, allocation: Allocation) -> bool:
    """Return whether each row is one job of the snapshot, in order, and all shares are feasible.

    Every allocation passes through here, so this takes a few array operations only. Comparisons
    with nan are False.
    """
    share, members = allocation.share, allocation.members
    if (
        allocation.rows != "jobs"
        or allocation.measure != "time"
        or share.shape != (len(snap.job), len(snap.capacity))
        or allocation.columns != accelerator_columns(len(snap.capacity))
        or members.shape != (len(snap.job), 1)
        or not np.array_equal(members[:, 0], snap.job)
    ):
        return False
    if not len(share):
        return True
    used = (share * snap.gang_on).sum(axis=0)
    return bool(
        share.min() >= 0
        and share.sum(axis=1).max() <= 1 + _SLACK
        and (used <= snap.devices * (1 + _SLACK) + 1e-9).all()
    )


def _check_each_rule(name: str, snap: Snapshot, allocation: Allocation) -> None:
    share, members, columns = allocation.share, allocation.members, allocation.columns
    if members.ndim != 2 or share.shape != (len(members), len(columns)):
        raise UsageError(
            f"policy {name!r}: shares of shape {_size(share)}: expected {len(members)} rows and"
            f" {len(columns)} columns"
        )
    wrong = ~np.isfinite(share) | (share < 0)
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        raise UsageError(
            f"policy {name!r}: {_label(snap, allocation, row)} has a share of"
            f" {share[row, column]:g}: expected 0 or more"
        )
    if allocation.rows == "jobs" and allocation.measure == "time":
        _check_time(name, snap, allocation)
    devices = snap.devices
    used = devices_held(snap, allocation)
    over = (used > devices * (1 + _SLACK) + 1e-9).nonzero()[0]
    if len(over):
        accelerator = int(over[0])
        of_it = [j for j, column in enumerate(columns) if column.accelerator == accelerator]
        row = int(share[:, of_it].sum(axis=1).argmax())
        raise UsageError(
            f"policy {name!r}: {used[accelerator]:.6g} {snap.cluster.accelerators[accelerator]}"
            f" allocated: expected at most {devices[accelerator]:g}; the largest share has"
            f" {_label(snap, allocation, row)}"
        )


def _check_time(name: str, snap: Snapshot, allocation: Allocation) -> None:
    """Raise UsageError for rows of unknown jobs and for jobs with shares above 1 in all."""
    members = allocation.members
    real = members >= 0
    if not (real[:, 0].all() and is_among(members[real], snap.job).all()):
        raise UsageError(f"policy {name!r}: rows of unknown jobs: expected members from snap.job")
    time = np.broadcast_to(allocation.share.sum(axis=1)[:, None], members.shape)
    busy = np.zeros(len(snap.job))
    np.add.at(busy, np.searchsorted(snap.job, members[real]), time[real])
    over = (busy > 1 + _SLACK).nonzero()[0]
    if len(over):
        row = int(over[0])
        raise UsageError(
            f"policy {name!r}: job {snap.ids[int(snap.job[row])]!r} has shares of"
            f" {busy[row]:.6g} in all: expected at most 1, all of its time"
        )


def devices_held(snap: Snapshot, allocation: Allocation) -> FloatArray:
    """Return accelerators → devices that an allocation holds."""
    share = allocation.share
    if allocation.measure == "time":
        row = np.searchsorted(snap.job, allocation.members[:, 0])
        gang = np.broadcast_to(snap.gang_on[row], (len(row), len(snap.capacity)))
        share = share * gang[:, [column.accelerator for column in allocation.columns]]
    used = np.zeros(len(snap.capacity))
    np.add.at(used, [column.accelerator for column in allocation.columns], share.sum(axis=0))
    return used


def _label(snap: Snapshot, allocation: Allocation, row: int) -> str:
    member = int(allocation.members[row, 0])
    if allocation.rows == "tenants":
        return f"tenant {snap.tenants[member].id!r}"
    return f"job {snap.ids[member]!r}"


def _size(share: FloatArray) -> str:
    return " × ".join(map(str, share.shape))
