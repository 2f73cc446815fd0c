"""`toolrelay store`: prune and export."""
# ruff: noqa: PLC0415 -- imports wait until the command runs: see the package

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, BinaryIO, TypeVar

import typer

from toolrelay.cli._output import ConfigFile, DataDirectory, examples

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolrelay.settings import Settings
    from toolrelay.stores.base import PruneResult, Store

T = TypeVar("T")

application = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@application.command(
    "prune",
    epilog=examples(
        "toolrelay store prune                   what is older than store.retention_days",
        "toolrelay store prune --older-than 7    what was last used more than a week ago",
    ),
)
def prune(
    *,
    older_than: Annotated[
        int | None,
        typer.Option(metavar="DAYS", min=0, max=36_500, help="Days since the last use. Default: store.retention_days."),
    ] = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Delete old turns, conversations and usage.

    Turns that are not finished are kept, and so are turns that a kept turn continues. A running gateway prunes by itself, daily;
    this command may be used at the same time.
    """
    import time

    from toolrelay.config import from_environment
    from toolrelay.stores.retention import DAY_SECONDS

    settings = from_environment(config, data_dir=data_dir)
    days = settings.store.retention_days if older_than is None else older_than
    if older_than is None and days == 0:
        raise typer.BadParameter("store.retention_days is 0: everything is kept. Say how many days", param_hint="--older-than")
    before = time.time() - days * DAY_SECONDS

    async def delete(store: Store) -> PruneResult:
        return await store.prune(before)

    deleted = _with_store(settings, delete)
    typer.echo(f"deleted: {deleted.turns} turns, {deleted.conversations} conversations, {deleted.usage} minutes of usage")


@application.command(
    "export",
    epilog=examples(
        "toolrelay store export backup.jsonl",
        "toolrelay store export | jq 'select(.type == \"message\")'",
    ),
)
def export(
    *,
    file: Annotated[str | None, typer.Argument(metavar="[FILE]", help="File to write. Default: standard output.")] = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Write everything as JSON lines: turns with their steps, messages, conversations and usage.

    FILE is readable only by you; what was in it before is replaced. The gateway may run meanwhile.
    """
    import os

    from toolrelay.config import from_environment
    from toolrelay.stores.base import open_recorded_store

    settings = from_environment(config, data_dir=data_dir)
    open_recorded_store(settings.store, settings.environment.data_dir)  # before FILE is emptied
    if file is None:
        _with_store(settings, lambda store: _write_records(store, sys.stdout.buffer))
        return
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            _with_store(settings, lambda store: _write_records(store, out))
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be written: {error.strerror}", param_hint="FILE") from None


async def _write_records(store: Store, out: BinaryIO) -> None:
    import msgspec

    encode = msgspec.json.Encoder().encode
    async for record in store.export():
        out.write(encode(record) + b"\n")
    out.flush()


def _with_store(settings: Settings, use: Callable[[Store], Awaitable[T]]) -> T:
    """Open the store that the gateway of these settings has, and use it."""
    import asyncio

    from toolrelay.stores.base import open_recorded_store

    async def main() -> T:
        store = open_recorded_store(settings.store, settings.environment.data_dir)
        await store.open()
        try:
            return await use(store)
        finally:
            await store.close()

    return asyncio.run(main())
