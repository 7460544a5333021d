"""Checksums of events and states."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the columns; rows of earlier versions stay without a checksum."""
    for table in ("events", "states"):
        op.add_column(table, sa.Column("digest", sa.String(32), nullable=True))


def downgrade() -> None:
    """Drop the columns and the number of the newest event."""
    op.execute("DELETE FROM documents WHERE kind IN ('log')")
    for table in ("events", "states"):
        op.drop_column(table, "digest")
