"""SQLAlchemy tables of the newest schema; ``migrations/`` holds the steps to it."""

import sqlalchemy as sa

metadata = sa.MetaData()

SCHEMA_VERSION = "0003"
"""schema that this version reads and writes"""

Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite autoincrements INTEGER only

events = sa.Table(
    "events",
    metadata,
    sa.Column("seq", Number, primary_key=True, autoincrement=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("digest", sa.String(32), nullable=True),
)
states = sa.Table(
    "states",
    metadata,
    sa.Column("seq", Number, primary_key=True, autoincrement=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("digest", sa.String(32), nullable=True),
)
documents = sa.Table(
    "documents",
    metadata,
    sa.Column("kind", sa.String(32), primary_key=True),
    sa.Column("id", sa.String(200), primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
)
audit = sa.Table(
    "audit",
    metadata,
    sa.Column("seq", Number, primary_key=True, autoincrement=True),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("who", sa.String(200), nullable=False),
    sa.Column("action", sa.String(64), nullable=False),
    sa.Column("subject", sa.String(200), nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("role", sa.String(16), nullable=False, server_default=""),
    sa.Column("actor", sa.String(250), nullable=False, server_default=""),
    sa.Column("changes", sa.Text, nullable=False, server_default=""),
    sa.Column("hash", sa.String(64), nullable=False, server_default=""),
)
lock = sa.Table(
    "lock",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("token", Number, nullable=False),
    sa.Column("owner", sa.String(200), nullable=False),
)


def schema(connection: sa.Connection) -> str | None:
    """Return the schema of a database; None if it has none."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    version = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    return None if version is None else str(version)
