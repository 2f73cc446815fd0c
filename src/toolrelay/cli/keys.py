"""`toolrelay keys`: create, list, rotate and revoke those of the gateway; new and hash for its configuration file."""
# ruff: noqa: PLC0415 -- imports wait until the command runs: see the package

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolrelay.cli._output import CommandError, ConfigFile, DataDirectory, examples

if TYPE_CHECKING:
    from toolrelay.cli._key_access import Described, KeyAccess

application = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=examples(
        "toolrelay keys create obsidian   make a key that the gateway knows at once",
        "toolrelay keys list",
        "toolrelay keys new obsidian      make a key for the configuration file",
    ),
)


def _find_access(config: str | None, port: int | None, data_dir: str | None) -> KeyAccess:
    from toolrelay.cli._key_access import find_access
    from toolrelay.config import from_environment

    return find_access(from_environment(config, port=port, data_dir=data_dir))


def _complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of keys that can be changed, for the shell's completion."""
    from toolrelay.errors import ToolrelayError

    try:
        found = _find_access(ctx.params.get("config"), ctx.params.get("port"), ctx.params.get("data_dir")).list_keys()
    except (CommandError, ToolrelayError):
        return []
    names = [str(key["name"]) for key in found if key["source"] == "store" and key["revoked_at"] is None]
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]


KeyName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name or id of the key.", autocompletion=_complete_name, show_default=False),
]
Port = Annotated[int | None, typer.Option(metavar="PORT", help="Port of the gateway. Default: server.port.")]


@application.command(
    "create",
    epilog=examples(
        "toolrelay keys create obsidian",
        "toolrelay keys create laptop --models fast --models 'local-*' --requests-per-minute 60",
        "toolrelay keys create script > key.txt",
    ),
)
def create_key(
    *,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the key. It appears in logs and lists.", show_default=False)
    ],
    approve: Annotated[bool, typer.Option("--approve", help="The key may answer approvals.")] = False,
    models: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="Model that the key may use, or a pattern. Repeatable. Default: all."),
    ] = None,
    toolsets: Annotated[
        list[str] | None,
        typer.Option(metavar="TOOLSET", help="Toolset that the key may use, or a pattern. Repeatable. Default: none."),
    ] = None,
    requests_per_minute: Annotated[
        int, typer.Option(metavar="N", min=0, help="Limit for this key. 0: limits.requests_per_minute.", show_default=False)
    ] = 0,
    config: ConfigFile = None,
    port: Port = None,
    data_dir: DataDirectory = None,
) -> None:
    """Make a key that the gateway knows at once, without a restart.

    Prints the key, which is shown only once; the gateway keeps its hash. The first key of a gateway closes it for clients without
    one. Needs the gateway's data directory; if no gateway runs there, its store is changed.
    """
    access = _find_access(config, port, data_dir)
    members: dict[str, Any] = {"name": name, "approve": approve, "requests_per_minute": requests_per_minute}
    members |= {"models": models} if models else {}
    members |= {"toolsets": toolsets} if toolsets else {}
    try:
        name.encode()
    except UnicodeError:
        raise typer.BadParameter("expected a name in the encoding of the terminal", param_hint="NAME") from None
    _print_key(access, access.create(members))


@application.command("list", epilog=examples("toolrelay keys list", "toolrelay keys list --all --json"))
def list_keys(
    *,
    everything: Annotated[bool, typer.Option("--all", help="List revoked keys too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    config: ConfigFile = None,
    port: Port = None,
    data_dir: DataDirectory = None,
) -> None:
    """List the keys of the gateway: those of the configuration file, and those of the store."""
    import json

    access = _find_access(config, port, data_dir)
    found = access.list_keys()
    shown = [key for key in found if everything or key["revoked_at"] is None]
    if as_json:
        typer.echo(json.dumps({"keys": shown}, indent=2))
    elif shown:
        _print_table(shown)
    else:
        typer.echo("There are no keys: every program on this machine may use the gateway.")
        _print_notes(access.note)


@application.command("rotate", epilog=examples("toolrelay keys rotate obsidian"))
def rotate_key(*, name: KeyName, config: ConfigFile = None, port: Port = None, data_dir: DataDirectory = None) -> None:
    """Replace a key by a new one, which is printed. The old one and its sessions end at once; its data stays.

    Keys of the configuration file are changed there.
    """
    access = _find_access(config, port, data_dir)
    _print_key(access, access.rotate(_find_id(access, name)))


@application.command("revoke", epilog=examples("toolrelay keys revoke obsidian"))
def revoke_key(*, name: KeyName, config: ConfigFile = None, port: Port = None, data_dir: DataDirectory = None) -> None:
    """Revoke a key. It and its sessions end at once. Its name is not used again.

    Keys of the configuration file are removed there.
    """
    access = _find_access(config, port, data_dir)
    revoked = access.revoke(_find_id(access, name))
    _print_notes(f"The key {revoked['name']} is revoked.", revoked["notice"], access.remark)


def _find_id(access: KeyAccess, name: str) -> str:
    found = [key for key in access.list_keys() if name in (key["name"], key["id"])]
    if not found:
        raise CommandError("There is no such key. `toolrelay keys list --all` lists them.")
    stored = [key for key in found if key["source"] == "store"]  # before one of the file with the same name
    return str((stored or found)[0]["id"])


def _print_key(access: KeyAccess, made: Described) -> None:
    """Print the key alone to standard output."""
    _print_notes(f"The key {made['name']}, which is shown only now:")
    typer.echo(made["key"])
    _print_notes(made["notice"], access.remark)


def _print_notes(*notes: str | None) -> None:
    from toolrelay.cli._text import escape_controls

    for note in notes:
        if note:
            typer.echo(escape_controls(note), err=True)


def _print_table(keys: list[Described]) -> None:
    from toolrelay.cli._text import escape_controls

    rows: list[tuple[str, ...]] = [("NAME", "WHERE", "APPROVES", "MODELS", "TOOLSETS", "PER MINUTE", "LAST USED")]
    rows += [tuple(escape_controls(text) for text in _format_key(key)) for key in keys]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        typer.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _format_key(key: Described) -> tuple[str, ...]:
    from datetime import datetime

    def moment(seconds: float | None) -> str:
        return "-" if seconds is None else f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M}"

    return (
        str(key["name"]),
        str(key["source"]) if key["revoked_at"] is None else f"revoked {moment(key['revoked_at'])}",
        "yes" if key["approve"] else "no",
        ", ".join(key["models"]) or "-",
        ", ".join(key["toolsets"]) or "-",
        str(key["requests_per_minute"] or "-"),
        moment(key["last_used_at"]),
    )


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
    """Make a key for the configuration file.

    It counts after a restart; `toolrelay keys create` makes one that counts at once. Prints the key, which is shown only once,
    and a block for the configuration file, which contains only the hash.
    """
    import json
    from hashlib import sha256

    import msgspec

    from toolrelay.runtime.keys import make_key_text
    from toolrelay.settings import KeySettings

    key = make_key_text()
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
