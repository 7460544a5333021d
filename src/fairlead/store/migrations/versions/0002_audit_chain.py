"""Role, author's id, values and a hash chain in the audit trail."""

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_NEW = ("role", "actor", "changes", "hash")
_LENGTHS = {"role": 16, "actor": 250, "hash": 64}
_HASHED = ("seq", "at", "who", "role", "actor", "action", "subject", "detail", "changes")
_PAGE = 2000


def upgrade() -> None:
    """Add the columns and chain the existing entries, the oldest first."""
    for name in _NEW:
        column = sa.String(_LENGTHS[name]) if name in _LENGTHS else sa.Text()
        op.add_column("audit", sa.Column(name, column, nullable=False, server_default=""))
    connection = op.get_bind()
    audit = sa.table("audit", *(sa.column(name) for name in (*_HASHED, "hash")))
    seq, previous = 0, "0" * 64
    while True:
        query = sa.select(audit).where(audit.c.seq > seq).order_by(audit.c.seq).limit(_PAGE)
        rows = connection.execute(query).mappings().all()
        if not rows:
            break
        hashes = []
        for row in rows:
            content = json.dumps([previous, *(row[n] for n in _HASHED)], separators=(",", ":"))
            previous = hashlib.sha256(content.encode()).hexdigest()
            hashes.append({"number": row["seq"], "new_hash": previous})
        change = sa.update(audit).where(audit.c.seq == sa.bindparam("number"))
        connection.execute(change.values(hash=sa.bindparam("new_hash")), hashes)
        seq = rows[-1]["seq"]
    documents = sa.table("documents", sa.column("kind"), sa.column("id"), sa.column("body"))
    head = json.dumps({"seq": seq, "hash": previous})
    connection.execute(sa.insert(documents).values(kind="audit", id="head", body=head))


def downgrade() -> None:
    """Drop the columns and the hash of the newest entry."""
    op.execute("DELETE FROM documents WHERE kind = 'audit'")  # lang: ok
    for name in _NEW:
        op.drop_column("audit", name)
