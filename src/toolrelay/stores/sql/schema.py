"""Schema version and migrations."""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.errors import StoreError
from toolrelay.stores.migrations import Migration, load_migrations
from toolrelay.stores.sql.database import Connection

_CREATE_VERSION = "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)"
_SELECT_VERSION = "SELECT max(version) FROM schema_version"
_INSERT_VERSION = "INSERT INTO schema_version (version) VALUES (?)"


def migrate(connection: Connection, name: str, *, begin: str, migrations: Sequence[Migration] | None = None) -> None:
    """Apply the migrations that are missing, all in one transaction. `name` is that of the database, for errors."""
    known = load_migrations() if migrations is None else migrations
    connection.execute(begin)
    try:
        connection.execute(_CREATE_VERSION)
        version = connection.execute(_SELECT_VERSION).fetchone()[0] or 0
        _check_version(name, version, len(known))
        for migration in known[version:]:
            for statement in migration.statements:
                connection.execute(statement)
            connection.execute(_INSERT_VERSION, (migration.version,))
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _check_version(name: str, version: int, known: int) -> None:
    if version > known:
        raise StoreError(
            f"{name} was written by a newer version of Toolrelay (schema {version}; this one knows {known}). "
            "Start the newer version, or name another directory with --data-dir. Nothing was changed."
        )
