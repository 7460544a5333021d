"""Handlers of processes for the stop signal."""

import signal
from pathlib import Path


def has_stop_handler(pid: int) -> bool:
    """Return whether a process has a handler for SIGTERM; True if that is unknown."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return True
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "")
    return not caught or bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)
