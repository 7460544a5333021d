"""Parked processes: which leases may continue them, and the files that hand them a lease."""

import select
from dataclasses import dataclass, replace
from pathlib import Path

from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper import lease_dir

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

    def lives(self) -> bool:
        """Return whether the keeper lives, also if its death was not noticed yet."""
        events = select.poll()
        events.register(self.pidfd, select.POLLIN)
        return not events.poll(0)

    def can_run(self, order: LaunchOrder) -> bool:
        """Return whether its processes can run an order: the same on the same device."""
        return without_lease(order) == without_lease(self.order)


def may_park(order: LaunchOrder) -> bool:
    """Return whether the process of an order could park: it must be alone and not contained."""
    alone = len(order.devices) == 1 and order.world_size in (None, 1)
    return order.may_stay and alone and not order.container


def used_gib(home: Path, default: float) -> float:
    """Return the host memory of a keeper's parked processes; ``default`` if it is unknown."""
    gib = (lease_dir.read_json(home / lease_dir.PARKED) or {}).get("gib")
    return float(gib) if isinstance(gib, int | float) else default


def is_saving(home: Path) -> bool:
    """Return whether a keeper's parked process has steps that it has not saved yet."""
    return (lease_dir.read_json(home / lease_dir.PARKED) or {}).get("unsaved") is not None


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


def without_lease(order: LaunchOrder) -> LaunchOrder:
    """Return an order without the fields that differ between leases of one process."""
    environment = {k: v for k, v in order.environment.items() if k not in _OF_LEASE}
    return replace(order, lease=0, time_limit_s=None, environment=environment, resumes=None)
