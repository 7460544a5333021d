"""What a lease has started, wherever that has gone: known by its environment."""

import os
from contextlib import suppress
from pathlib import Path

from fairlead.engines.base import Order


def left_by(order: Order) -> list[int]:
    """Return the processes of a lease on its order's nodes; one just dying has no environment.

    A gang's other nodes, which have keepers of their own, may be on the same machine.
    """
    marks = {
        f"FAIRLEAD_LEASE={order.lease}".encode(),
        f"FAIRLEAD_CHECKPOINT_DIR={order.checkpoint_dir}".encode(),
    }
    nodes = {f"FAIRLEAD_NODE={node}".encode() for node, _ in order.devices}
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            told = set(path.read_bytes().split(b"\0"))
            if marks <= told and nodes & told:
                found.append(int(path.parent.name))
    return [pid for pid in found if pid != os.getpid()]
