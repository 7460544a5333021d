"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the log, its states, documents, the audit trail and the lock."""
    op.create_table(
        "events",
        sa.Column("seq", _NUMBER, primary_key=True, autoincrement=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "states",
        sa.Column("seq", _NUMBER, primary_key=True, autoincrement=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "documents",
        sa.Column("kind", sa.String(32), primary_key=True),
        sa.Column("id", sa.String(200), primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "audit",
        sa.Column("seq", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("who", sa.String(200), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_table(
        "lock",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("token", _NUMBER, nullable=False),
        sa.Column("owner", sa.String(200), nullable=False),
    )


def downgrade() -> None:
    """Drop everything."""
    for name in ("lock", "audit", "documents", "states", "events"):
        op.drop_table(name)
