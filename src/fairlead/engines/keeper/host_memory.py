"""How much of a machine's memory a job's processes hold."""

import os
from collections.abc import Collection
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_SESSION, _PAGES = 3, 21
"""where a process's session and resident pages stand in its stat, after its name"""


def memory_above_limit_gib(limit_gib: float, sessions: Collection[int]) -> float | None:
    """Return how much all processes in these sessions hold if that is above the limit, else None.

    What several of them share counts once. That is looked up only if they hold more than the
    limit with it, for it takes the kernel long.
    """
    resident: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # A name may hold anything, even brackets; the last one ends it.
            found = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(found[_SESSION]) in sessions:
                resident[int(path.parent.name)] = int(found[_PAGES]) * _PAGE / 2**30
        except (OSError, IndexError):  # it has just ended
            continue
    held = sum(resident.values())
    if held > limit_gib and len(resident) > 1:
        held = sum(_proportional_gib(pid, most) for pid, most in resident.items())
    return held if held > limit_gib else None


def _proportional_gib(pid: int, resident: float) -> float:
    """Return a process's memory with its part of what it shares; ``resident`` if unknown."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return resident
    kib = next((line.split()[1] for line in lines if line.startswith("Pss:")), None)
    return resident if kib is None else int(kib) / 2**20
