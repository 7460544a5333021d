"""The tables, as SQLAlchemy sees them; migrations/ holds how they came to be."""

import sqlalchemy as sa

metadata = sa.MetaData()

SCHEMA_VERSION = "0001"
"""the schema that this program reads and writes"""

Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite counts up INTEGER only

events = sa.Table(
    "events",
    metadata,
    sa.Column("seq", Number, primary_key=True, autoincrement=False),
    sa.Column("body", sa.Text, nullable=False),
)
states = sa.Table(
    "states",
    metadata,
    sa.Column("seq", Number, primary_key=True, autoincrement=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
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
)
lock = sa.Table(
    "lock",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("token", Number, nullable=False),
    sa.Column("owner", sa.String(200), nullable=False),
)


def schema(connection: sa.Connection) -> str | None:
    """Return the schema that a database has, None for none."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)
