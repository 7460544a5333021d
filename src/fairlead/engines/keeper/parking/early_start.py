"""Processes that start before their first lease: their time limit and their output."""

from collections.abc import Collection
from pathlib import Path

from fairlead.engines.keeper import log_file
from fairlead.engines.keeper.secrets import RedactedLog

MAX_START_S = 120.0
"""seconds in which such a process must attach"""
_MAX_LOG_BYTES = 1 << 20
"""maximum of output before a lease that is kept"""


def open_early_log(home: Path, index: int, secrets: Collection[str] = ()) -> RedactedLog:
    """Return the log, empty at first, of a member that has no lease yet."""
    _path(home, index).unlink(missing_ok=True)
    return RedactedLog(_path(home, index), secrets)


def begin_with_early_output(log: RedactedLog, home: Path, index: int) -> RedactedLog:
    """Put the output of a member before the log of its first lease; return that log."""
    log.write(log_file.read(_path(home, index), 0, _MAX_LOG_BYTES)[1])
    return log


def _path(home: Path, index: int) -> Path:
    return home / f"output.{index}.log"
