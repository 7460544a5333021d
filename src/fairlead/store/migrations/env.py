"""Runs migrations on the store's connection."""

from alembic import context

from fairlead.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
