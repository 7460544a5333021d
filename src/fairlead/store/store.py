"""The store: one transaction per batch of events and changes, one writer at a time."""

import fcntl
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import sqlalchemy as sa

from fairlead import failpoints
from fairlead.model.errors import FairleadError
from fairlead.store import tables

_ADVISORY = 0x6661_6972  # "fair": the key of PostgreSQL's advisory lock
_POLL_S = 0.5
_TCP_KEEPALIVE = (
    *("tcp_keepalives_idle = 3", "tcp_keepalives_interval = 1", "tcp_keepalives_count = 3"),
    "tcp_user_timeout = 6000",
)
"""keepalive settings: the lock of a lost machine is free after seconds, not hours"""
_PAGE = 2000


class FencedError(FairleadError):
    """Another scheduler has taken over; this one must not write."""

    code = "fenced"


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event of the log."""

    seq: int
    body: str


@dataclass(frozen=True, slots=True)
class Put:
    """A document to write; it replaces the document of the same kind and id."""

    kind: str
    id: str
    body: str


@dataclass(frozen=True, slots=True)
class Remove:
    """A document to remove if it exists."""

    kind: str
    id: str


@dataclass(frozen=True, slots=True)
class Audit:
    """An entry of the audit trail: a user's action on a subject."""

    at: float
    who: str  # lang: ok
    action: str
    subject: str
    detail: str = ""


Change = Put | Remove | Audit


class Store:
    """Events, states and documents in one database.

    Calls block; the live driver makes them in a separate thread. Only the holder of the lock
    writes: every write checks its token in the same transaction.
    """

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url)
        self._sqlite = self._engine.dialect.name == "sqlite"
        self._path = Path(self._engine.url.database or "")
        self._lock: TextIO | sa.Connection | None = None
        if self._sqlite:
            sa.event.listen(self._engine, "connect", _set_up_sqlite)
        self._upgrade()

    def _upgrade(self) -> None:
        with self._engine.begin() as connection:
            if tables.schema(connection) != tables.SCHEMA_VERSION:
                # Alembic loads slowly, and a server should restart fast.
                from fairlead.store.schema import upgrade  # noqa: PLC0415

                upgrade(connection)

    # -- lock -----------------------------------------------------------------------------------

    def acquire(self, owner: str, *, wait_s: float = 0.0) -> int | None:
        """Return a new fencing token once no other scheduler holds the lock; None on timeout.

        Earlier holders can no longer write, even if they are still running.
        """
        until = time.monotonic() + wait_s
        while not self._try_lock():
            if time.monotonic() >= until:
                return None
            time.sleep(min(_POLL_S, max(until - time.monotonic(), 0.0)))
        with self._engine.begin() as connection:
            row = connection.execute(sa.select(tables.lock.c.token)).first()
            token = 1 if row is None else int(row[0]) + 1
            connection.execute(sa.delete(tables.lock))
            connection.execute(sa.insert(tables.lock).values(id=1, token=token, owner=owner))
        return token

    def _try_lock(self) -> bool:
        return self._try_file() if self._sqlite else self._try_postgresql()

    def _try_file(self) -> bool:
        file = self._path.with_suffix(".lock").open("a", encoding="ascii")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._lock = file
        return True

    def _try_postgresql(self) -> bool:
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        for setting in _TCP_KEEPALIVE:
            connection.execute(sa.text(f"SET {setting}"))
        held = connection.execute(sa.select(sa.func.pg_try_advisory_lock(_ADVISORY))).scalar()
        if not held:
            connection.close()
            return False
        self._lock = connection
        return True

    # -- events and states ----------------------------------------------------------------------

    def append(
        self, token: int, first: int, bodies: Sequence[str], changes: Sequence[Change] = ()
    ) -> None:
        """Write events, numbered from ``first``, and changes in one transaction."""
        with self._engine.begin() as connection:
            self._check(connection, token)
            if bodies:
                rows = [{"seq": first + i, "body": body} for i, body in enumerate(bodies)]
                connection.execute(sa.insert(tables.events), rows)
            _apply(connection, changes)
            failpoints.point("server.commit.inside")

    def save_state(self, token: int, seq: int, body: str) -> None:
        """Save the state after event ``seq``; delete earlier states and events up to it."""
        packed = zlib.compress(body.encode(), 1)
        with self._engine.begin() as connection:
            self._check(connection, token)
            connection.execute(sa.delete(tables.states).where(tables.states.c.seq <= seq))
            connection.execute(sa.insert(tables.states).values(seq=seq, body=packed))
            connection.execute(sa.delete(tables.events).where(tables.events.c.seq <= seq))
            failpoints.point("server.state.inside")

    def load_state(self) -> tuple[int, str] | None:
        """Return the newest state and the number of the last event that it includes."""
        query = sa.select(tables.states).order_by(tables.states.c.seq.desc())
        with self._engine.connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else (int(row.seq), zlib.decompress(row.body).decode())

    def load_events(self, after: int) -> Iterator[LoggedEvent]:
        """Yield the events after number ``after``, in order."""
        while True:
            query = (
                sa.select(tables.events)
                .where(tables.events.c.seq > after)
                .order_by(tables.events.c.seq)
                .limit(_PAGE)
            )
            with self._engine.connect() as connection:
                rows = connection.execute(query).all()
            for row in rows:
                yield LoggedEvent(int(row.seq), row.body)
            if len(rows) < _PAGE:
                return
            after = int(rows[-1].seq)

    # -- documents ------------------------------------------------------------------------------

    def documents(self, kind: str) -> dict[str, str]:
        """Return id → body of all documents of a kind."""
        table = tables.documents
        query = sa.select(table.c.id, table.c.body).where(table.c.kind == kind)
        with self._engine.connect() as connection:
            return {row.id: row.body for row in connection.execute(query)}

    def audit_trail(self, *, before: int | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Return entries of the audit trail, newest first."""
        table = tables.audit
        query = sa.select(table).order_by(table.c.seq.desc()).limit(limit)
        if before is not None:
            query = query.where(table.c.seq < before)
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def close(self) -> None:
        """Release the lock and close all connections."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        self._engine.dispose()

    def _check(self, connection: sa.Connection, token: int) -> None:
        query = sa.select(tables.lock.c.token)
        if not self._sqlite:
            query = query.with_for_update(read=True)
        current = connection.execute(query).scalar()
        if current != token:
            raise FencedError(f"a scheduler with token {current} has taken over from {token}")


def _apply(connection: sa.Connection, changes: Sequence[Change]) -> None:
    """Apply all changes, one statement per kind of change; the last change of a document wins."""
    table = tables.documents
    last = {(c.kind, c.id): c for c in changes if not isinstance(c, Audit)}
    if last:
        replaced = table.c.kind == sa.bindparam("old_kind"), table.c.id == sa.bindparam("old_id")
        keys = [{"old_kind": kind, "old_id": id_} for kind, id_ in last]
        connection.execute(sa.delete(table).where(*replaced), keys)
    puts = [
        {"kind": change.kind, "id": change.id, "body": change.body}
        for change in last.values()
        if isinstance(change, Put)
    ]
    if puts:
        connection.execute(sa.insert(table), puts)
    entries = [
        {name: getattr(change, name) for name in change.__slots__}
        for change in changes
        if isinstance(change, Audit)
    ]
    if entries:
        connection.execute(sa.insert(tables.audit), entries)


def _set_up_sqlite(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    for setting in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000"):
        cursor.execute(f"PRAGMA {setting}")
    cursor.close()
