"""Memory that a job's processes hold on this machine."""

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_SESSION, _PAGES = 3, 21
"""fields of /proc/PID/stat after the process's name: session and resident pages"""


def memory_above_limit_gib(limit_gib: float, sessions: Collection[int]) -> float | None:
    """Return the memory of all processes in these sessions if it exceeds the limit, else None."""
    used_gib = used_memory_gib(sessions, exact_above_gib=limit_gib)
    return used_gib if used_gib > limit_gib else None


def used_memory_gib(sessions: Collection[int], *, exact_above_gib: float) -> float:
    """Return the memory of all processes in these sessions.

    Shared memory counts once. The kernel takes long to tell shared memory apart, so it is asked
    only if the processes exceed ``exact_above_gib`` with shared memory counted for each.
    """
    resident: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # A name may hold anything, even brackets; the last one ends it.
            stat = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(stat[_SESSION]) in sessions:
                resident[int(path.parent.name)] = int(stat[_PAGES]) * _PAGE / 2**30
        except (OSError, IndexError):  # the process has just ended
            continue
    used_gib = sum(resident.values())
    if used_gib > exact_above_gib and len(resident) > 1:
        used_gib = sum(_proportional_gib(pid, pages) for pid, pages in resident.items())
    return used_gib


def available_gib() -> float:
    """Return the memory of this machine that is free for new data; infinite if unknown."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) / 2**20
    return float("inf")


def _proportional_gib(pid: int, resident: float) -> float:
    """Return a process's memory with its part of shared memory; ``resident`` if unknown."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return resident
    kib = next((line.split()[1] for line in lines if line.startswith("Pss:")), None)
    return resident if kib is None else int(kib) / 2**20
