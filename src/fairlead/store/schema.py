"""Migrates a database to the newest schema."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from fairlead.store import tables
from fairlead.store.errors import StoreError

_MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(connection: sa.Connection) -> None:
    """Migrate a database from any schema to the newest one."""
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def schema_state(url: str | sa.URL) -> tuple[str | None, str]:
    """Return the schema of a database, None if it has none, and the newest; change nothing."""
    engine = sa.create_engine(url)
    try:
        with engine.connect() as connection:
            return tables.schema(connection), tables.SCHEMA_VERSION
    except sa.exc.SQLAlchemyError as error:
        raise StoreError(f"cannot read the database: {str(error).splitlines()[0]}") from None
    finally:
        engine.dispose()
