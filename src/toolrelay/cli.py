"""The command line: serve, check, keys.

What a command needs is imported inside it, so that `--version`, `--help` and the shell's completion pay for typer alone.
"""
# ruff: noqa: PLC0415 -- see above

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from toolrelay import __version__
from toolrelay.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from toolrelay.backends.base import Finding
    from toolrelay.settings import Settings

REACH_SECONDS = 2.0

WRONG_CONFIGURATION = 1
UNREACHABLE = 2
MISUSED = 2


def _examples(*lines: str) -> str:
    """For the end of a help text. The backspace is the mark that keeps these lines from being filled."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


# Plain help: it can be copied as it stands, and rich stays unimported.
application = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_examples(
        "toolrelay serve               the demo model on http://127.0.0.1:8787",
        "toolrelay check               is the configuration right, do the models' servers answer?",
        "toolrelay keys new obsidian   a key for a client",
    ),
)
keys = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
application.add_typer(keys, name="keys", help="Make a key for a client, or the hash of one.")

ConfigFile = Annotated[
    str | None,
    typer.Option("--config", "-c", metavar="FILE", help="The configuration. Default: $TOOLRELAY_CONFIG, else ./toolrelay.toml."),
]


def _show_version(asked: bool) -> None:  # noqa: FBT001 -- typer calls it so
    if asked:
        typer.echo(f"toolrelay {__version__}")
        raise typer.Exit


@application.callback()
def toolrelay(
    *,
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Real tool calling for every client on every model."""


@application.command(
    epilog=_examples(
        "toolrelay serve",
        "toolrelay serve --config toolrelay.toml --port 9000",
        "TOOLRELAY_LOG=json TOOLRELAY_LOG_LEVEL=warning toolrelay serve",
    )
)
def serve(
    *,
    config: ConfigFile = None,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="The address to listen on; beyond loopback only with keys.")
    ] = None,
    port: Annotated[int | None, typer.Option(metavar="PORT", help="The port to listen on; 0: any free one.")] = None,
    data_dir: Annotated[
        str | None, typer.Option(metavar="DIRECTORY", help="Where state is kept. Default: ~/.local/share/toolrelay.")
    ] = None,
) -> None:
    """Start the gateway.

    Prints one line with the URL when it is ready. Without a configuration file it serves the model `demo`, which needs no
    provider. SIGTERM and Ctrl-C end it in good order.
    """
    from toolrelay.config import from_environment

    # Before the heavy imports: a wrong configuration should be told at once.
    settings = from_environment(config, host=host, port=port, data_dir=data_dir)

    from toolrelay.app import serve as run

    raise typer.Exit(run(settings))


@application.command(
    epilog=_examples(
        "toolrelay check",
        "toolrelay check --config /etc/toolrelay.toml --offline",
    )
)
def check(
    *,
    config: ConfigFile = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not try whether the models' servers answer.")] = False,
) -> None:
    """Check the configuration and try the models' servers.

    Prints each model with its provider, wire, base URL and whether a key is set, never the key. A server is tried with a TCP
    connection only: no request is sent. Exit code 1: the configuration is wrong; 2: a server does not answer.
    """
    from toolrelay.app import open_models
    from toolrelay.config import from_environment
    from toolrelay.settings import check_binding

    try:
        settings = from_environment(config)
        check_binding(settings)
        open_models(settings)  # as serve does, so that what passes here is not refused there
    except ConfigurationError as error:
        _complain(error)
        raise typer.Exit(WRONG_CONFIGURATION) from None
    reached = _print_models(settings, offline=offline)
    for note in _notes(settings):
        typer.echo(f"note: {note}", err=True)
    raise typer.Exit(0 if reached else UNREACHABLE)


def _print_models(settings: Settings, *, offline: bool) -> bool:
    """The table of models; False if a server does not answer."""
    from toolrelay.backends._providers import PROVIDERS

    typer.echo(
        f"configuration: {settings.config_file or 'no file, the defaults'}\nkeys: {len(settings.keys) or 'none, loopback only'}\n"
    )
    rows = [("MODEL", "PROVIDER", "MODEL THERE", "WIRE", "BASE URL", "KEY", "SERVER")]
    urls = {
        name: model.base_url or PROVIDERS[model.provider].base_url
        for name, model in settings.models.items()
        if model.provider in PROVIDERS
    }
    faults = {} if offline else _try_all(set(urls.values()))
    findings = {} if offline else _inspect(settings)
    for name, model in settings.models.items():
        if name in findings:
            found = findings[name]
            server = f"NO: {found.problem}" if found.problem else found.told
            rows.append((name, model.provider, model.model, "-", model.base_url or "-", "yes" if model.api_key else "no", server))
            continue
        if name not in urls:
            server = "built in" if model.provider == "demo" else "not tried"
            rows.append((name, model.provider, model.model, "-", "-", "-", server))
            continue
        url = urls[name]
        server = "not tried" if offline else f"NO: {faults[url]}" if faults[url] else "answers"
        wire = model.wire or PROVIDERS[model.provider].wire
        rows.append((name, model.provider, model.model, wire, url, "yes" if model.api_key else "no", server))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for note in dict.fromkeys(note for found in findings.values() for note in found.notes):
        typer.echo(f"note: {note}", err=True)
    return not any(faults.values()) and not any(found.problem for found in findings.values())


def _inspect(settings: Settings) -> dict[str, Finding]:
    """What the kinds of backends that can tell say of their models."""
    import asyncio

    from toolrelay.backends.base import Finding, discover

    kinds = discover()

    async def all_of_them() -> dict[str, Finding]:
        found: dict[str, Finding] = {}
        for name, model in settings.models.items():
            inspect = kinds[model.provider].inspect
            if inspect is None:
                continue
            try:
                found[name] = await inspect(model, settings.surroundings)
            except ConfigurationError as error:
                found[name] = Finding(problem=error.message)
        return found

    return asyncio.run(all_of_them())


def _try_all(urls: Iterable[str]) -> dict[str, str]:
    """What is wrong with each URL's server; empty where it takes a connection."""
    import time
    from threading import Thread

    # Threads that the process does not wait for: looking up a name cannot be given a time limit.
    faults = dict.fromkeys(urls, f"no answer within {REACH_SECONDS:g} s")
    threads = [Thread(target=_try, args=(url, faults), daemon=True) for url in faults]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + REACH_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(faults)


def _try(url: str, faults: dict[str, str]) -> None:
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=REACH_SECONDS).close()
    except TimeoutError:
        return
    except OSError as error:
        faults[url] = (error.strerror or str(error)).lower()
    except UnicodeError:
        faults[url] = "this is no host name"
    else:
        faults[url] = ""


def _notes(settings: Settings) -> Iterator[str]:
    """What is allowed and still looks like a mistake."""
    from fnmatch import fnmatchcase

    from toolrelay._expectations import did_you_mean, quoted

    for key in settings.keys:
        for pattern in key.models:
            if not any(fnmatchcase(name, pattern) for name in settings.models):
                hint = did_you_mean(pattern, settings.models)
                yield f"keys.{quoted(key.name)}.models: no model here is called {pattern}{hint}"


@keys.command(
    "new",
    epilog=_examples(
        "toolrelay keys new obsidian",
        "toolrelay keys new laptop --models fast --models 'local-*'",
    ),
)
def new_key(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is; it appears in logs.", show_default=False)],
    models: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="A model that the key may use, or a pattern; repeatable. Default: all."),
    ] = None,
) -> None:
    """Make a key for a client.

    Prints the key, once, and the block for the configuration file, which holds only its hash.
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


@keys.command(
    "hash",
    epilog=_examples(
        "toolrelay keys hash < key.txt",
        "toolrelay keys hash           asks for the key and does not show it",
    ),
)
def hash_key() -> None:
    """Read a key from standard input and print its sha256.

    A line break at the end is not part of the key.
    """
    from getpass import getpass
    from hashlib import sha256

    key = (getpass("Key: ") if sys.stdin.isatty() else sys.stdin.read()).strip()
    if not key:
        raise typer.BadParameter("expected a key, found nothing", param_hint="standard input")
    typer.echo(sha256(key.encode()).hexdigest())


@application.command(
    epilog=_examples(
        "toolrelay replay docs/replays/seven-blocks.json",
        "toolrelay replay tests/golden/exchanges/one-call --wire responses --chunk 7",
    )
)
def replay(
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A recording: JSON, JSON lines, or a folder.", show_default=False)],
    client: Annotated[str, typer.Option(metavar="STYLE", help="What the client understands: openai or use_tool.")] = "",
    wire: Annotated[str, typer.Option(metavar="WIRE", help="What the client speaks: chat or responses.")] = "",
    dialect: Annotated[str, typer.Option(metavar="NAME", help="How the model prints its calls.")] = "",
    chunk: Annotated[int, typer.Option(metavar="N", help="The model's answer comes in pieces of so many characters.", min=0)] = 0,
) -> None:
    """Show what a client would see of a recorded exchange.

    No model is asked anything. Frames go to standard output, what the log would say to standard error.
    """
    from pathlib import Path

    from toolrelay.replay import run

    try:
        run(Path(file), client=client, wire=wire, dialect=dialect, chunk=chunk)
    except ConfigurationError as error:
        typer.echo(f"toolrelay: {error.message}", err=True)
        raise typer.Exit(MISUSED) from None


def _complain(error: ConfigurationError) -> None:
    lines = error.message.splitlines()
    typer.echo("\n".join(("toolrelay: the configuration is wrong:", *(f"  {line}" for line in lines))), err=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point; `arguments` are those of the process unless given."""
    try:
        application(args=arguments, prog_name="toolrelay")
    except ConfigurationError as error:
        _complain(error)
        sys.exit(MISUSED)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
