"""Bounded waiting for a database that is locked by another process or away for a moment."""

import sqlite3
import time

import sqlalchemy as sa
import structlog

from fairlead.store.errors import StoreUnavailableError

log = structlog.get_logger("fairlead.store")

UNAVAILABLE = (sa.exc.DBAPIError, sqlite3.DatabaseError)
"""errors that a locked or unreachable database raises, among others"""
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.1, 2.0
_LOG_EVERY_S = 10.0
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_TEMPORARY_STATES = ("08", "40", "53", "55P03", "57P")
"""beginnings of PostgreSQL's SQLSTATE: connection, rollback, resources, lock, shutdown"""
_LASTING = (
    *("authentication failed", "no password supplied", "pg_hba.conf", "does not exist"),
    *("could not translate host name", "permission denied", "failed to resolve host"),
)
"""parts of the messages of failed connections that waiting cannot mend"""


class Waiting:
    """Waits between attempts to use the database, for a limited time in all."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._began = time.monotonic()
        self._logged_at = -_LOG_EVERY_S
        self._pause_s = _FIRST_PAUSE_S
        self.attempts = 0
        """failed attempts"""

    def after(self, error: Exception) -> None:
        """Wait before the next attempt; raise StoreUnavailableError once the limit is reached.

        Raises the error itself if waiting cannot mend it.
        """
        if not is_temporary(error):
            raise error
        self.attempts += 1
        reason, waited_s = reason_of(error), time.monotonic() - self._began
        if waited_s >= self._limit_s:
            raise StoreUnavailableError(
                f"database: not available for {waited_s:.0f} s ({reason}): end the process that"
                " locks it, or start the database; the next start of the server continues"
            ) from error
        if waited_s - self._logged_at >= _LOG_EVERY_S:
            log.warning("store.waiting", error=reason, limit_s=self._limit_s)
            self._logged_at = waited_s
        time.sleep(min(self._pause_s, max(self._limit_s - waited_s, 0.0)))
        self._pause_s = min(2 * self._pause_s, _MAX_PAUSE_S)


def reason_of(error: Exception) -> str:
    """Return the database's message, on one line."""
    return (str(getattr(error, "orig", None) or error).splitlines() or ["unknown"])[0]


def is_damaged(error: Exception) -> bool:
    """Return whether a SQLite file is not a database, or a damaged one."""
    return _sqlite_code(error) in _DAMAGED


def is_full(error: Exception) -> bool:
    """Return whether SQLite cannot write: its disk is full or fails."""
    return _sqlite_code(error) in _FULL


def _sqlite_code(error: Exception) -> int:
    """Return SQLite's primary result code; 0 for errors of other databases."""
    original = getattr(error, "orig", None) or error
    # The low byte is the primary code; the others tell its variants apart.
    return int(getattr(original, "sqlite_errorcode", 0)) & 0xFF


def is_temporary(error: Exception) -> bool:
    """Return whether the database may work again without a change by a person."""
    original = getattr(error, "orig", None) or error
    if isinstance(original, sqlite3.Error):
        return _sqlite_code(error) in _BUSY
    state = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    if state:
        return str(state).startswith(_TEMPORARY_STATES)
    if getattr(error, "connection_invalidated", False):
        return True
    if not isinstance(error, sa.exc.OperationalError):
        return False
    return not any(part in str(original) for part in _LASTING)
