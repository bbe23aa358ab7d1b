"""Alembic's entry point: run the migrations on the connection that `open_store` hands over."""

from alembic import context

from accounting.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
