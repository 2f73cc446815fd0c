"""The schema, as numbered SQL files. Each file is applied once, in order; a file that was released is never changed.

The SQL is that of SQLite and PostgreSQL: BYTEA, BOOLEAN and DOUBLE PRECISION are types that both accept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources

from msgspec import Struct


class Migration(Struct, frozen=True):
    version: int
    name: str
    statements: tuple[str, ...]


@cache
def load_migrations() -> Sequence[Migration]:
    """Return all migrations, from version 1 on without gaps."""
    files = sorted(file.name for file in resources.files(__name__).iterdir() if file.name.endswith(".sql"))
    migrations = tuple(_load(name) for name in files)
    if [migration.version for migration in migrations] != list(range(1, len(migrations) + 1)):
        raise AssertionError(f"the migrations have gaps: {files}")
    return migrations


def _load(file: str) -> Migration:
    number, _, name = file.removesuffix(".sql").partition("_")
    text = resources.files(__name__).joinpath(file).read_text(encoding="utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return Migration(int(number), name, tuple(statement.strip() for statement in code.split(";") if statement.strip()))
