"""The accounting store: SQLite by default, another database by URL; SQLAlchemy Core, schema by Alembic."""
