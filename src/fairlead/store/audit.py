"""The audit trail: entries in a hash chain, written in the transaction of the change they record.

Each entry holds the SHA-256 of the previous entry's hash and of its own content. The document
``audit/head`` holds the number and the hash of the newest entry, so that entries missing at the
end are noticed too. Where the oldest entries were removed because of their age, the document
``audit/anchor`` holds number and hash of the last removed one, from which the chain continues.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import sqlalchemy as sa

from fairlead.store import tables

FIRST_HASH = "0" * 64
"""previous hash of the first entry"""
_PAGE = 2000


@dataclass(frozen=True, slots=True)
class Actor:
    """Author of a change: the owner's name and role, and the id of the token or OIDC subject."""

    name: str
    role: str = ""
    id: str = ""


User = Actor | str
"""author of a change, or only a name"""


@dataclass(frozen=True, slots=True)
class Audit:
    """An entry of the audit trail: a user's action on a subject."""

    at: float
    who: User  # lang: ok
    action: str
    subject: str
    detail: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """name of a setting → its old and new value"""


@dataclass(frozen=True, slots=True)
class RemoveOldAudit:
    """Removal of at most ``limit`` entries older than ``before``, the oldest first."""

    before: float
    limit: int
    audit: Audit
    """entry that records the removal"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Entries to select; None selects all."""

    author: str | None = None
    """name of the author, or id of the author's token"""
    role: str | None = None
    action: str | None = None
    subject: str | None = None
    since: float | None = None
    """first time"""
    until: float | None = None
    """time before which all entries are"""

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """Return the conditions of a query."""
        columns = tables.audit.c
        conditions = [
            columns[name] == value
            for name in ("role", "action", "subject")
            if (value := getattr(self, name)) is not None
        ]
        if self.author is not None:
            conditions.append((columns.who == self.author) | (columns.actor == self.author))
        if self.since is not None:
            conditions.append(columns.at >= self.since)
        if self.until is not None:
            conditions.append(columns.at < self.until)
        return conditions


ALL_ENTRIES = AuditFilter()


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of checking the hash chain."""

    entries: int
    newest_hash: str
    problem: str | None = None
    """first place at which the chain is broken"""


def name_of(user: User) -> str:
    """Return the name of an author."""
    return user.name if isinstance(user, Actor) else user


def changed_values(old: object | None, new: Any) -> dict[str, Any]:
    """Return old and new values of the fields in which two values of a dataclass differ."""
    pairs = ((each.name, getattr(old, each.name, None)) for each in fields(new))
    return {
        name: {"old": value, "new": getattr(new, name)}
        for name, value in pairs
        if value != getattr(new, name)
    }


def append_entries(connection: sa.Connection, entries: Sequence[Audit]) -> None:
    """Append entries to the chain; the cost does not depend on the length of the trail."""
    if not entries:
        return
    seq, previous = _head(connection) or _lost_head(connection)
    rows = []
    for entry in entries:
        seq += 1
        row = _row(seq, entry)
        previous = row["hash"] = _hash(previous, row)
        rows.append(row)
    connection.execute(sa.insert(tables.audit), rows)
    _write_place(connection, "head", seq, previous)


def remove_oldest(connection: sa.Connection, removal: RemoveOldAudit) -> None:
    """Remove old entries, up to the first one that is too new or was changed.

    A broken chain stays broken, and the newest entry stays. The removal is an entry itself, with
    the number and the hash of the last removed entry.
    """
    table = tables.audit
    seq, previous = _anchor(connection)
    query = sa.select(table).where(table.c.seq > seq).order_by(table.c.seq)
    rows = connection.execute(query.limit(removal.limit + 1)).mappings().all()
    count = 0
    for row in rows[:-1]:
        if row["at"] >= removal.before or row["hash"] != _hash(previous, row):
            break
        count, seq, previous = count + 1, row["seq"], row["hash"]
    if count:
        _write_place(connection, "anchor", seq, previous)
        connection.execute(sa.delete(table).where(table.c.seq <= seq))
        detail = f"{count} entries, the last one number {seq} with hash {previous}"
        append_entries(connection, [replace(removal.audit, detail=detail)])


def read_entries(
    connection: sa.Connection, *, before: int | None, limit: int, wanted: AuditFilter = ALL_ENTRIES
) -> list[dict[str, Any]]:
    """Return entries, newest first."""
    table = tables.audit
    query = sa.select(table).order_by(table.c.seq.desc()).limit(limit)
    if before is not None:
        query = query.where(table.c.seq < before)
    query = query.where(*wanted.conditions())
    rows = [dict(row) for row in connection.execute(query).mappings()]
    return [{**row, "changes": json.loads(row["changes"] or "{}")} for row in rows]


def verify_chain(connection: sa.Connection, newest: int | None = None) -> Verification:
    """Recompute all hashes, or those of the newest entries only.

    ``connection`` must see one snapshot of the database.
    """
    count = 0
    seq, previous = _anchor(connection) if newest is None else _entry_before(connection, newest)
    for row in _rows_after(connection, seq):
        if row["hash"] != _hash(previous, row):
            problem = f"entry {row['seq']}: content or predecessor was changed"
            return Verification(count, previous, problem)
        count, seq, previous = count + 1, row["seq"], row["hash"]
    head = _head(connection)
    if head is None:
        return Verification(count, previous, "the hash of the newest entry is missing")
    if head != (seq, previous):
        problem = f"entry {head[0]}: missing, or not the newest: the trail ends at entry {seq}"
        return Verification(count, previous, problem)
    return Verification(count, previous)


def _head(connection: sa.Connection) -> tuple[int, str] | None:
    return _read_place(connection, "head")


def _anchor(connection: sa.Connection) -> tuple[int, str]:
    """Return number and hash of the entry before the first one."""
    return _read_place(connection, "anchor") or (0, FIRST_HASH)


def _read_place(connection: sa.Connection, name: str) -> tuple[int, str] | None:
    body = connection.execute(sa.select(tables.documents.c.body).where(*_place(name))).scalar()
    try:
        place = json.loads(body or "")
        return int(place["seq"]), str(place["hash"])
    except (ValueError, KeyError, TypeError):
        return None


def _write_place(connection: sa.Connection, name: str, seq: int, entry_hash: str) -> None:
    """Replace the document that holds number and hash of an entry."""
    table, body = tables.documents, json.dumps({"seq": seq, "hash": entry_hash})
    updated = connection.execute(sa.update(table).where(*_place(name)).values(body=body))
    if updated.rowcount == 0:
        connection.execute(sa.insert(table).values(kind="audit", id=name, body=body))


def _place(name: str) -> tuple[sa.ColumnElement[bool], ...]:
    return tables.documents.c.kind == "audit", tables.documents.c.id == name


def _lost_head(connection: sa.Connection) -> tuple[int, str]:
    """Return a head under which the chain stays visibly broken: entries may be missing."""
    return connection.execute(sa.select(sa.func.max(tables.audit.c.seq))).scalar() or 0, ""


def _row(seq: int, entry: Audit) -> dict[str, Any]:
    actor = entry.who if isinstance(entry.who, Actor) else Actor(entry.who)
    return {
        "seq": seq,
        "at": entry.at,
        "who": actor.name,
        "role": actor.role,
        "actor": actor.id,
        "action": entry.action,
        "subject": entry.subject,
        "detail": entry.detail,
        "changes": json.dumps(dict(entry.changes), default=str) if entry.changes else "",
    }


def _hash(previous: str, row: Mapping[Any, Any]) -> str:
    names = ("seq", "at", "who", "role", "actor", "action", "subject", "detail", "changes")
    content = json.dumps([previous, *(row[name] for name in names)], separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def _entry_before(connection: sa.Connection, newest: int) -> tuple[int, str]:
    """Return number and hash of the entry before the newest ones."""
    table = tables.audit
    query = sa.select(table.c.seq, table.c.hash).order_by(table.c.seq.desc()).offset(newest)
    row = connection.execute(query.limit(1)).first()
    return _anchor(connection) if row is None else (int(row.seq), row.hash)


def _rows_after(connection: sa.Connection, after: int) -> Iterator[Mapping[str, Any]]:
    table = tables.audit
    while True:
        query = sa.select(table).where(table.c.seq > after).order_by(table.c.seq).limit(_PAGE)
        rows = connection.execute(query).mappings().all()
        yield from ({str(name): value for name, value in row.items()} for row in rows)
        if len(rows) < _PAGE:
            return
        after = rows[-1]["seq"]
