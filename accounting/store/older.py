"""Takes a store back to the schema of an older version, before that version is installed again."""

from __future__ import annotations

from alembic import command
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

from accounting.errors import StoreError
from accounting.store.database import migrations, writing

# Earlier schemas cannot be restored: names that differed only in case are distinct since, and GPUs have instances.
OLDEST = "0002"


def take_back(engine: Engine, revision: str, *, apply: bool) -> str:
    """Take a store back to a schema, with `apply`; return the one that it had.

    What only the newer schemas hold is lost. Raises StoreError for a schema that is unknown, newer than the
    store's, or too old.
    """
    config = migrations()
    known = sorted(script.revision for script in ScriptDirectory.from_config(config).walk_revisions())
    with engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision() or ""
    may_be = [one for one in known if OLDEST <= one <= current]
    if revision not in may_be:
        raise StoreError(
            f"the store has schema {current} and cannot be taken back to {revision}; give one of "
            f"{', '.join(may_be)}, or use a copy of the store from that time"
        )
    if apply:
        with writing(engine) as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, revision)
    return current
