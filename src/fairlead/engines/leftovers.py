"""What a lease has started, wherever that has gone: known by its environment."""

import os
from contextlib import suppress
from pathlib import Path

from fairlead.engines.base import Order


def left_by(order: Order) -> list[int]:
    """Return the processes of a lease that live; one that is just dying has no environment."""
    marks = {
        f"FAIRLEAD_LEASE={order.lease}".encode(),
        f"FAIRLEAD_CHECKPOINT_DIR={order.checkpoint_dir}".encode(),
    }
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if marks <= set(path.read_bytes().split(b"\0")):
                found.append(int(path.parent.name))
    return [pid for pid in found if pid != os.getpid()]
