"""Runs migrations on the connection that the caller opened, in its transaction."""

from alembic import context

from stromboli.history.store import tables

context.configure(
    connection=context.config.attributes["connection"], target_metadata=tables.METADATA
)
context.run_migrations()
