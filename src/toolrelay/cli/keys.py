"""`toolrelay keys`: new and hash."""
# ruff: noqa: PLC0415 -- imports wait until the command runs: see the package

from __future__ import annotations

import sys
from typing import Annotated

import typer

from toolrelay.cli._output import examples

application = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@application.command(
    "new",
    epilog=examples(
        "toolrelay keys new obsidian",
        "toolrelay keys new laptop --models fast --models 'local-*'",
    ),
)
def new_key(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key's owner. It appears in logs.", show_default=False)],
    models: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="Model that the key may use, or a pattern. Repeatable. Default: all."),
    ] = None,
) -> None:
    """Make a key for a client.

    Prints the key, which is shown only once, and a block for the configuration file, which contains only the hash.
    """
    import json
    import secrets
    from hashlib import sha256

    import msgspec

    from toolrelay.settings import KeySettings

    key = f"tr-{secrets.token_urlsafe(30)}"
    table = {"name": name, "sha256": sha256(key.encode()).hexdigest(), "models": models or ["*"]}
    try:
        msgspec.convert(table, KeySettings)
    except msgspec.ValidationError:
        raise typer.BadParameter("expected a name that is not empty and has no blanks around it", param_hint="NAME") from None
    typer.echo("The key, which is shown only now:", err=True)
    typer.echo(key)
    typer.echo("For the configuration file, toolrelay.toml:", err=True)
    typer.echo("\n[[keys]]")
    for field, value in table.items():
        typer.echo(f"{field} = {json.dumps(value, ensure_ascii=False)}")


@application.command(
    "hash",
    epilog=examples(
        "toolrelay keys hash < key.txt",
        "toolrelay keys hash           ask for the key without showing it",
    ),
)
def hash_key() -> None:
    """Read a key from standard input and print its sha256.

    A line break at the end is ignored.
    """
    from getpass import getpass
    from hashlib import sha256

    key = (getpass("Key: ") if sys.stdin.isatty() else sys.stdin.read()).strip()
    if not key:
        raise typer.BadParameter("expected a key, found nothing", param_hint="standard input")
    typer.echo(sha256(key.encode()).hexdigest())
