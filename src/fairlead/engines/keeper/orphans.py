"""What a lease has started, wherever that has gone: known by its environment."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fairlead.engines.base import Order
from fairlead.engines.keeper import lease_dir

_LOOK_S, _LONGEST_S = 0.02, 10.0


def orphans_of(order: Order) -> dict[int, int]:
    """Return the processes of a lease on its order's nodes → their parents.

    One that is just dying has no environment. A gang's other nodes, which have keepers of their
    own, may be on the same machine.
    """
    marks = {
        f"FAIRLEAD_LEASE={order.lease}".encode(),
        f"FAIRLEAD_CHECKPOINT_DIR={order.checkpoint_dir}".encode(),
    }
    nodes = {f"FAIRLEAD_NODE={node}".encode() for node, _ in order.devices}
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            told = set(path.read_bytes().split(b"\0"))
            if marks <= told and nodes & told and int(path.parent.name) != os.getpid():
                stat = (path.parent / "stat").read_text(encoding="utf-8", errors="replace")
                found[int(path.parent.name)] = int(stat.rpartition(")")[2].split()[1])
    return found


def end(processes: Iterable[int]) -> None:
    """Kill processes and wait until they are gone: a device is free when nobody is on it."""
    began = {pid: lease_dir.started(pid) for pid in processes}
    for pid in began:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + _LONGEST_S
    while time.monotonic() < until:
        if not any(at is not None and lease_dir.started(pid) == at for pid, at in began.items()):
            return
        time.sleep(_LOOK_S)
