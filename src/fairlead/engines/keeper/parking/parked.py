"""Parked processes: which leases may continue them, and the files that hand them a lease."""

import select
from dataclasses import dataclass, replace
from pathlib import Path

from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.parking import exit_reasons
from fairlead.job.copies.part import base_directory, without_part

SERVER_VARIABLE = "FAIRLEAD_SERVER_PID"
"""environment variable of a keeper with the process ID of the server that starts it"""
_NEXT = "next.json"
"""file in a keeper's first directory that names the next lease"""
_OF_LEASE = (
    *("FAIRLEAD_URL", "FAIRLEAD_JOB_TOKEN", "FAIRLEAD_LEASE_S"),
    "FAIRLEAD_EMULATED_STEPS_PER_S",
)
"""environment variables that differ between leases of one process"""


@dataclass(slots=True, eq=False)
class ParkedKeeper:
    """A keeper whose processes are parked, as the supervisor knows it."""

    order: LaunchOrder
    """order of the last lease"""
    home: Path
    pid: int
    pidfd: int
    gib: float
    """host memory that its processes use"""
    suspended: bool = False
    """its processes hold all of their work, and save none"""
    resizes: bool = False
    """its processes can continue in a gang of another size"""

    def lives(self) -> bool:
        """Return whether the keeper lives, also if its death was not noticed yet.

        One that dies lets go of its directory a moment before its process has ended.
        """
        events = select.poll()
        events.register(self.pidfd, select.POLLIN)
        return not events.poll(0) and lease_dir.is_alive(self.home)

    def can_run(self, order: LaunchOrder) -> bool:
        """Return whether its processes can run an order."""
        return self.adapted(order) is not None

    def adapted(self, order: LaunchOrder) -> LaunchOrder | None:
        """Return an order as its processes can run it, each with its device and rank, else None.

        The order must be that of the last lease, on the same devices. A gang that can be resized
        may lose its last members, or get new ones after its own.
        """
        staying = self.order.devices[: len(order.devices)]
        if not set(staying) <= set(order.devices):
            return None
        order = _arranged(order, staying)
        if without_lease(order) == without_lease(self.order):
            return order
        is_same = _of_any_size(order) == _of_any_size(self.order)
        return order if is_same and self.resizes and may_park(order) else None

    def obstacle(self, order: LaunchOrder) -> str:
        """Return the reason for which its processes cannot run an order; empty if they can."""
        if self.can_run(order):
            return ""
        ours, theirs = self.order.devices, order.devices
        if not set(ours[: len(theirs)]) <= set(theirs):
            return exit_reasons.OTHER_DEVICES
        same_size = len(ours) == len(theirs)
        return exit_reasons.OTHER_ORDER if same_size or self.resizes else exit_reasons.OTHER_SIZE


def may_wait(order: LaunchOrder) -> bool:
    """Return whether its processes could wait without a lease: all here, and in no container."""
    all_here = order.world_size in (None, len(order.devices))
    return order.may_stay and all_here and not order.container


def may_park(order: LaunchOrder) -> bool:
    """Return whether the processes of an order could stay after its lease."""
    return may_wait(order) and not order.forks


def exit_reason(order: LaunchOrder) -> str:
    """Return the reason for which processes that may stay could not park; empty without one."""
    return exit_reasons.CONTAINER if order.may_stay and order.container else ""


def may_park_alone(order: LaunchOrder) -> bool:
    """Return whether an order has one process, which could park."""
    return may_park(order) and len(order.devices) == 1


def used_gib(home: Path, default: float) -> float:
    """Return the host memory of a keeper's parked processes; ``default`` if it is unknown."""
    gib = (lease_dir.read_json(home / lease_dir.PARKED) or {}).get("gib")
    return float(gib) if lease_dir.is_number(gib) else default


def is_saving(home: Path) -> bool:
    """Return whether a keeper's parked process has steps that it has not saved yet."""
    return (lease_dir.read_json(home / lease_dir.PARKED) or {}).get("unsaved") is not None


def can_resize(home: Path) -> bool:
    """Return whether a keeper's parked processes can continue in a gang of another size."""
    return (lease_dir.read_json(home / lease_dir.PARKED) or {}).get("resizes") is True


def waits_for_next(home: Path) -> bool:
    """Return whether a keeper's processes have run under a lease and are, or were, parked last."""
    return (lease_dir.read_json(home / lease_dir.PARKED) or {}).get("had_lease") is True


def write_next(home: Path, lease: int) -> None:
    """Name the next lease of parked processes."""
    lease_dir.write_json(home / _NEXT, {"lease": lease}, durable=False)


def take_next(home: Path) -> Path | None:
    """Return the directory of the next lease and forget it; None if there is none."""
    lease = (lease_dir.read_json(home / _NEXT) or {}).get("lease")
    if not isinstance(lease, int):
        return None
    (home / _NEXT).unlink(missing_ok=True)
    return home.parent / str(lease)


def grown(running: LaunchOrder, order: LaunchOrder) -> LaunchOrder | None:
    """Return an order as the members of a running one could run it with more; else None."""
    if not set(running.devices) < set(order.devices):
        return None
    order = _arranged(order, running.devices)
    return order if _of_any_size(order) == _of_any_size(running) and may_park(order) else None


def without_lease(order: LaunchOrder) -> LaunchOrder:
    """Return an order without the fields that differ between leases of one process.

    A process runs copies and the job itself.
    """
    environment = {k: v for k, v in order.environment.items() if k not in _OF_LEASE}
    order = replace(order, lease=0, time_limit_s=None, offload_gib=0.0)
    return replace(
        order,
        environment=without_part(environment),
        checkpoint_dir=base_directory(order.environment, order.checkpoint_dir),
        resumes=None,
        restart_reason="",
    )


def _arranged(order: LaunchOrder, first: tuple[tuple[str, int], ...]) -> LaunchOrder:
    """Return an order whose first members have these devices."""
    rest = (device for device in order.devices if device not in first)
    places = [order.devices.index(device) for device in (*first, *rest)]
    return replace(
        order,
        devices=tuple(order.devices[place] for place in places),
        accelerators=tuple(order.accelerators[place] for place in places),
        visible=tuple(order.visible[place] for place in places) if order.visible else (),
    )


def _of_any_size(order: LaunchOrder) -> LaunchOrder:
    """Return an order without the fields that differ between leases and sizes of a gang."""
    order = without_lease(order)
    return replace(order, devices=(), accelerators=(), visible=(), max_processes=None)
