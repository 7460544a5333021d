"""The event log in the database: numbered without gaps, with a checksum for each event.

The document ``log/head`` holds the number of the newest event, so that events missing at the end
are noticed too. Events, states and logs of earlier versions have no checksum and no head; their
numbers and bodies are checked, too.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from fairlead.store import tables
from fairlead.store.errors import DamagedLogError

_PAGE = 2000
_HEAD = tables.documents.c.kind == "log", tables.documents.c.id == "head"


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event of the log."""

    seq: int
    body: str


def append_events(connection: sa.Connection, first: int, bodies: Sequence[str]) -> None:
    """Write events, numbered from ``first``."""
    rows = [
        {"seq": seq, "body": body, "digest": _digest(seq, body.encode())}
        for seq, body in enumerate(bodies, start=first)
    ]
    connection.execute(sa.insert(tables.events), rows)
    _write_head(connection, first + len(bodies) - 1)


def has_event(connection: sa.Connection, seq: int, body: str) -> bool:
    """Return whether the log has this very event."""
    query = sa.select(tables.events.c.body).where(tables.events.c.seq == seq)
    return connection.execute(query).scalar() == body


def write_state(connection: sa.Connection, seq: int, body: str) -> None:
    """Replace the saved state by the one after event ``seq``; delete the events up to it."""
    packed = zlib.compress(body.encode(), 1)
    values = {"seq": seq, "body": packed, "digest": _digest(seq, packed)}
    connection.execute(sa.delete(tables.states).where(tables.states.c.seq <= seq))
    connection.execute(sa.insert(tables.states).values(values))
    connection.execute(sa.delete(tables.events).where(tables.events.c.seq <= seq))


def has_state(connection: sa.Connection, seq: int, body: str) -> bool:
    """Return whether the saved state is this very one."""
    return read_state(connection) == (seq, body)


def read_state(connection: sa.Connection) -> tuple[int, str] | None:
    """Return the newest state and the number of the last event that it includes."""
    query = sa.select(tables.states).order_by(tables.states.c.seq.desc())
    row = connection.execute(query).first()
    if row is None:
        return None
    seq, problem = int(row.seq), f"the saved state after event {row.seq} is damaged"
    if row.digest is not None and row.digest != _digest(seq, row.body):
        raise DamagedLogError(problem)
    try:
        return seq, zlib.decompress(row.body).decode()
    except (zlib.error, UnicodeDecodeError):
        raise DamagedLogError(problem) from None


def read_events(
    read_page: Callable[[sa.Select[tuple[object, ...]]], Sequence[sa.Row[tuple[object, ...]]]],
    head: int | None,
    after: int,
) -> Iterator[LoggedEvent]:
    """Yield the events after number ``after``; raise DamagedLogError at the first bad one."""
    last = after
    while True:
        query = sa.select(tables.events).where(tables.events.c.seq > last)
        rows = read_page(query.order_by(tables.events.c.seq).limit(_PAGE))
        for row in rows:
            _check(row, last)
            last += 1
            yield LoggedEvent(last, row.body)
        if len(rows) < _PAGE:
            break
    if head is not None and last < head:
        raise _missing(last + 1, head)


def _missing(first: int, last: int) -> DamagedLogError:
    listed = (
        f"event {first} of the log is"
        if first == last
        else f"events {first} to {last} of the log are"
    )
    return DamagedLogError(f"{listed} missing", accepted=first - 1)


def _check(row: sa.Row[tuple[object, ...]], last: int) -> None:
    """Raise DamagedLogError unless the row is the intact event after number ``last``."""
    if row.seq <= last:
        raise DamagedLogError(f"event {row.seq} of the log occurs twice", accepted=last - 1)
    if row.seq != last + 1:
        raise _missing(last + 1, row.seq - 1)
    body = row.body
    if not isinstance(body, str):
        intact = False
    elif row.digest is not None:
        intact = row.digest == _digest(row.seq, body.encode())
    else:
        intact = True
    if not intact:
        problem = f"event {row.seq} of the log is damaged (its checksum does not match)"
        raise DamagedLogError(problem, accepted=last)


def read_head(connection: sa.Connection) -> int | None:
    """Return the number of the newest event; None for a log of an earlier version."""
    body = connection.execute(sa.select(tables.documents.c.body).where(*_HEAD)).scalar()
    return int(body) if isinstance(body, str) and body.isdecimal() else None


def cut(connection: sa.Connection, last: int) -> list[str]:
    """Remove the events after number ``last``; return them as lines of JSON."""
    later = tables.events.c.seq > last
    rows = connection.execute(sa.select(tables.events).where(later).order_by(tables.events.c.seq))
    lines = [json.dumps({"seq": row.seq, "body": str(row.body)}) for row in rows]
    connection.execute(sa.delete(tables.events).where(later))
    _write_head(connection, last)
    return lines


def _write_head(connection: sa.Connection, seq: int) -> None:
    changed = connection.execute(sa.update(tables.documents).where(*_HEAD).values(body=str(seq)))
    if not changed.rowcount:
        values = {"kind": "log", "id": "head", "body": str(seq)}
        connection.execute(sa.insert(tables.documents).values(values))


def _digest(seq: int, content: bytes) -> str:
    digest = hashlib.blake2b(content, digest_size=16, key=str(seq).encode())
    return digest.hexdigest()
