"""The store: one transaction per batch of events and changes, one writer at a time."""

import fcntl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

import sqlalchemy as sa

from fairlead import failpoints
from fairlead.store import event_log, tables
from fairlead.store.audit import (
    ALL_ENTRIES,
    Audit,
    AuditFilter,
    RemoveOldAudit,
    Verification,
    append_entries,
    read_entries,
    remove_oldest,
    verify_chain,
)
from fairlead.store.errors import (
    DamagedLogError,
    FencedError,
    StoreError,
    StoreUnavailableError,
)
from fairlead.store.event_log import LoggedEvent
from fairlead.store.waiting import UNAVAILABLE, Waiting, is_damaged, is_full, reason_of

T = TypeVar("T")

_ADVISORY = 0x6661_6972  # "fair": the key of PostgreSQL's advisory lock
_POLL_S = 0.5
_TCP_KEEPALIVE = (
    *("tcp_keepalives_idle = 3", "tcp_keepalives_interval = 1", "tcp_keepalives_count = 3"),
    "tcp_user_timeout = 6000",
)
"""keepalive settings: the lock of a lost machine is free after seconds, not hours"""
_LIBPQ = {
    "connect_timeout": "10",
    "tcp_user_timeout": "10000",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
}
"""connection settings: a lost server is noticed after seconds"""
_LOCK_TIMEOUT = "SET lock_timeout = '5s'"
DATABASES = ("sqlite", "postgresql")
"""kinds of database, as SQLAlchemy names them"""
DEFAULT_WAIT_S = 60.0
"""seconds to wait for a locked or unreachable database"""


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


Change = Put | Remove | Audit | RemoveOldAudit


class Store:
    """Events, states and documents in one database.

    Calls block; the live driver makes them in a separate thread. Only the holder of the lock
    writes: every write checks its token in the same transaction. A call waits ``wait_s`` for a
    database that is locked or unreachable and then raises StoreUnavailableError, at once on a full
    disk.
    """

    def __init__(self, url: str | sa.URL, *, wait_s: float = DEFAULT_WAIT_S) -> None:
        address = sa.make_url(url)
        self._sqlite = address.get_backend_name() == "sqlite"
        libpq = address.drivername in ("postgresql+psycopg", "postgresql+psycopg2")
        defaults = {k: v for k, v in _LIBPQ.items() if k not in address.query} if libpq else {}
        self._engine = sa.create_engine(address, connect_args=defaults)
        self._wait_s = wait_s
        self._path = Path(address.database or "")
        self._lock: TextIO | sa.Connection | None = None
        sa.event.listen(
            self._engine, "connect", _set_up_sqlite if self._sqlite else _set_up_postgresql
        )
        self._attempt(_upgrade)

    def _attempt(self, work: Callable[[sa.Connection], T]) -> T:
        """Return the result of a transaction; wait while the database is not available."""
        return self._attempt_numbered(lambda connection, _: work(connection))

    def _attempt_numbered(self, work: Callable[[sa.Connection, int], T]) -> T:
        waiting = Waiting(self._wait_s)
        while True:
            try:
                if waiting.attempts and isinstance(self._lock, sa.Connection):
                    self._keep_lock(self._lock)
                with self._engine.begin() as connection:
                    return work(connection, waiting.attempts)
            except UNAVAILABLE as error:
                if is_damaged(error):
                    raise self._damaged(error) from None
                if is_full(error):
                    raise self._full(error) from None
                waiting.after(error)

    def _damaged(self, error: Exception) -> StoreError:
        name = str(self._path) if self._sqlite else "the database"
        return StoreError(f"{name}: damaged ({reason_of(error)}): restore a backup of it")

    def _full(self, error: Exception) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"{self._path}: disk full or failing ({reason_of(error)}): free space in"
            f" {self._path.parent}, then start the server again; nothing stored was lost"
        )

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

        def take(connection: sa.Connection) -> int:
            row = connection.execute(sa.select(tables.lock.c.token)).first()
            token = 1 if row is None else int(row[0]) + 1
            connection.execute(sa.delete(tables.lock))
            connection.execute(sa.insert(tables.lock).values(id=1, token=token, owner=owner))
            return token

        return self._attempt(take)

    def _try_lock(self) -> bool:
        if self._sqlite:
            return self._try_file()
        waiting = Waiting(self._wait_s)
        while True:
            try:
                return self._try_postgresql()
            except UNAVAILABLE as error:
                waiting.after(error)

    def _keep_lock(self, held: sa.Connection) -> None:
        """Take the advisory lock again if its connection is gone.

        If another connection has it, writes continue until the token shows that another scheduler
        has taken over: the lock may be that of the lost connection.
        """
        if not (held.closed or held.invalidated):
            try:
                held.execute(sa.select(1))
            except UNAVAILABLE:
                held.invalidate()
            else:
                return
        held.close()
        self._try_postgresql()

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

        def write(connection: sa.Connection, attempts: int) -> None:
            self._check(connection, token)
            if bodies and attempts and event_log.has_event(connection, first, bodies[0]):
                return  # committed before the connection was lost
            if bodies:
                event_log.append_events(connection, first, bodies)
            _apply(connection, changes)
            failpoints.point("server.commit.inside")

        self._attempt_numbered(write)

    def save_state(self, token: int, seq: int, body: str, changes: Sequence[Change] = ()) -> None:
        """Save the state after event ``seq`` and apply changes, in one transaction.

        Deletes earlier states and the events up to ``seq``.
        """

        def write(connection: sa.Connection, attempts: int) -> None:
            self._check(connection, token)
            if changes and attempts and event_log.has_state(connection, seq, body):
                return  # committed before the connection was lost
            event_log.write_state(connection, seq, body)
            _apply(connection, changes)
            failpoints.point("server.state.inside")

        self._attempt_numbered(write)

    def load_state(self) -> tuple[int, str] | None:
        """Return the newest state and the number of the last event that it includes."""
        return self._attempt(event_log.read_state)

    def load_events(self, after: int) -> Iterator[LoggedEvent]:
        """Yield the events after number ``after``, in order.

        Raises DamagedLogError at the first event that is missing or damaged.
        """
        head = self._attempt(event_log.read_head)

        def read_page(query: Any) -> Any:
            return self._attempt(lambda connection: connection.execute(query).all())

        return event_log.read_events(read_page, head, after)

    def cut_log(self, token: int, last: int) -> list[str]:
        """Remove the events after the last intact one; return the removed ones.

        Removes nothing unless event ``last`` is the last intact one.
        """
        state = self.load_state()
        try:
            for _ in self.load_events(0 if state is None else state[0]):
                pass
        except DamagedLogError as error:
            if error.accepted != last:
                raise
        else:
            return []

        def write(connection: sa.Connection) -> list[str]:
            self._check(connection, token)
            return event_log.cut(connection, last)

        return self._attempt(write)

    # -- documents ------------------------------------------------------------------------------

    def documents(self, kind: str) -> dict[str, str]:
        """Return id → body of all documents of a kind."""
        table = tables.documents
        query = sa.select(table.c.id, table.c.body).where(table.c.kind == kind)
        rows = self._attempt(lambda connection: connection.execute(query).all())
        return {row.id: row.body for row in rows}

    def documents_between(self, kind: str, first: str, last: str) -> dict[str, str]:
        """Return id → body of the documents of a kind with ids from ``first`` to ``last``."""
        table = tables.documents
        query = (
            sa.select(table.c.id, table.c.body)
            .where(table.c.kind == kind, table.c.id.between(first, last))
            .order_by(table.c.id)
        )
        rows = self._attempt(lambda connection: connection.execute(query).all())
        return {row.id: row.body for row in rows}

    def document(self, kind: str, id_: str) -> str | None:
        """Return the body of one document; None if there is none."""
        table = tables.documents
        query = sa.select(table.c.body).where(table.c.kind == kind, table.c.id == id_)
        return self._attempt(lambda connection: connection.execute(query).scalar())

    def audit_trail(
        self, *, before: int | None = None, limit: int = 100, wanted: AuditFilter = ALL_ENTRIES
    ) -> list[dict[str, Any]]:
        """Return entries of the audit trail, newest first."""
        with self._engine.connect() as connection:
            return read_entries(connection, before=before, limit=limit, wanted=wanted)

    def old_audit_entries(self, before: float) -> int:
        """Return the number of audit entries older than ``before``."""
        query = sa.select(sa.func.count()).where(tables.audit.c.at < before)
        return self._attempt(lambda connection: int(connection.execute(query).scalar_one()))

    def verify_audit_trail(self, newest: int | None = None) -> Verification:
        """Check the hash chain of the audit trail, or of its newest entries, on one snapshot."""
        with self._engine.connect() as connection:
            if self._sqlite:
                connection.exec_driver_sql("BEGIN")  # the driver begins none for reading
            else:
                connection.execution_options(isolation_level="REPEATABLE READ")
            return verify_chain(connection, newest)

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
    last = {(c.kind, c.id): c for c in changes if isinstance(c, Put | Remove)}
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
    append_entries(connection, [change for change in changes if isinstance(change, Audit)])
    for change in changes:
        if isinstance(change, RemoveOldAudit):
            remove_oldest(connection, change)


def _upgrade(connection: sa.Connection) -> None:
    if tables.schema(connection) != tables.SCHEMA_VERSION:
        # Alembic loads slowly, and a server should restart fast.
        from fairlead.store.schema import upgrade  # noqa: PLC0415

        upgrade(connection)


def _set_up_sqlite(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    for setting in ("busy_timeout=2000", "journal_mode=WAL", "synchronous=FULL"):
        cursor.execute(f"PRAGMA {setting}")
    cursor.close()


def _set_up_postgresql(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    cursor.execute(_LOCK_TIMEOUT)
    cursor.close()
    connection.commit()
