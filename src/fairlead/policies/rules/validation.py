"""Shares of policies from outside the package: refused where no cluster could give them."""

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray
from fairlead.model.errors import UsageError
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import Policy

_SLACK = 1e-6
"""what a solver may be off by, relative"""


def is_third_party(policy: Policy) -> bool:
    """Tell whether a policy's class is not one of this package, whose own are tested."""
    return type(policy).__module__.partition(".")[0] != "fairlead"


def check_allocation(name: str, snap: Snapshot, allocation: Allocation) -> None:
    """Refuse shares that are no numbers or negative, or more time or devices than there are.

    The error names the policy and a job (or tenant) that has such a share.
    """
    share, members, columns = allocation.share, allocation.members, allocation.columns
    if members.ndim != 2 or share.shape != (len(members), len(columns)):
        raise UsageError(
            f"policy {name!r}: its shares are a table of {_size(share)} for"
            f" {len(members)} rows and {len(columns)} columns; give one share for each"
        )
    wrong = ~np.isfinite(share) | (share < 0)
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        raise UsageError(
            f"policy {name!r}: {_label(snap, allocation, row)} has a share of"
            f" {share[row, column]:g}; give shares of 0 or more"
        )
    if allocation.rows == "jobs" and allocation.measure == "time":
        _check_time(name, snap, allocation)
    devices = snap.devices
    used = held(snap, allocation)
    over = (used > devices * (1 + _SLACK) + 1e-9).nonzero()[0]
    if len(over):
        kind = int(over[0])
        mine = [j for j, column in enumerate(columns) if column.accelerator == kind]
        row = int(share[:, mine].sum(axis=1).argmax())
        raise UsageError(
            f"policy {name!r}: its shares hold {used[kind]:.6g} {snap.cluster.accelerators[kind]},"
            f" of which there are {devices[kind]:g}, most of them"
            f" {_label(snap, allocation, row)}; give no more than there are"
        )


def _check_time(name: str, snap: Snapshot, allocation: Allocation) -> None:
    """Refuse rows of unknown jobs, and jobs that would run more than all of the time."""
    members = allocation.members
    real = members >= 0
    if not (real[:, 0].all() and np.isin(members[real], snap.job).all()):
        raise UsageError(
            f"policy {name!r}: its rows are of jobs that are not there; give members from snap.job"
        )
    time = np.broadcast_to(allocation.share.sum(axis=1)[:, None], members.shape)
    busy = np.zeros(len(snap.job))
    np.add.at(busy, np.searchsorted(snap.job, members[real]), time[real])
    over = (busy > 1 + _SLACK).nonzero()[0]
    if len(over):
        row = int(over[0])
        raise UsageError(
            f"policy {name!r}: job {snap.ids[int(snap.job[row])]!r} has shares of"
            f" {busy[row]:.6g} in all; give no job more than 1, the whole of its time"
        )


def held(snap: Snapshot, allocation: Allocation) -> FloatArray:
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
