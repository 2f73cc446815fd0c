"""`toolrelay codex`: sign in to Codex and out again, with the binary that the gateway uses."""
# ruff: noqa: PLC0415 -- imports wait until the command runs: see the package

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolrelay.cli._output import FAILED, CommandError, DataDirectory, examples

if TYPE_CHECKING:
    from toolrelay.backends.codex.settings import CodexLocation

application = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@application.command(
    "login",
    epilog=examples(
        "toolrelay codex login                  in a browser on this machine",
        "toolrelay codex login --device-auth    with a code, in a browser anywhere",
        "toolrelay codex login --with-api-key < key.txt",
    ),
)
def login(
    *,
    device_auth: Annotated[
        bool, typer.Option("--device-auth", help="Print a code to enter in a browser on any machine.")
    ] = False,
    with_api_key: Annotated[bool, typer.Option("--with-api-key", help="Read an API key from standard input.")] = False,
) -> None:
    """Sign in to Codex.

    Codex itself asks and prints what to do. The sign-in is kept in auth.json in your Codex home ($CODEX_HOME, else ~/.codex),
    which Codex shares with the gateway. A running gateway uses it from the next request on.
    """
    from toolrelay.backends.codex.account import run_login

    if device_auth and with_api_key:
        raise typer.BadParameter("choose one of --device-auth and --with-api-key", param_hint="--with-api-key")
    location = _location()
    if run_login(location, device_auth=device_auth, with_api_key=with_api_key):
        raise CommandError("Codex did not sign in.", FAILED)
    typer.echo(f"The sign-in is in {location.auth_file}")


@application.command("logout", epilog=examples("toolrelay codex logout"))
def logout(*, data_dir: DataDirectory = None) -> None:
    """Sign out of Codex, on this machine and for the gateway.

    Removes auth.json from your Codex home, and the gateway's copy from its data directory.
    """
    from toolrelay.backends.codex.account import run_logout

    if run_logout(_location(data_dir)):
        raise CommandError("Codex did not sign out.", FAILED)


@application.command("status", epilog=examples("toolrelay codex status"))
def status() -> None:
    """Show the Codex binary and whether you are signed in.

    Reads the file of the sign-in. `toolrelay check` also asks Codex whether it can use it. No key and no token is printed.

    Exit codes: 0 signed in, 1 not signed in.
    """
    from toolrelay.backends.codex.sign_in import describe_sign_in

    location = _location()
    try:
        account = describe_sign_in(location.auth_file)
    except OSError as error:
        raise CommandError(f"{location.auth_file}: {error.strerror}", FAILED) from None
    typer.echo(f"binary:  {location.binary}")
    typer.echo(f"file:    {location.auth_file}")
    typer.echo(f"sign-in: {account or 'none; sign in with `toolrelay codex login`'}")
    raise typer.Exit(0 if account else FAILED)


def _location(data_dir: str | None = None) -> CodexLocation:
    from toolrelay.backends.codex.account import account_location
    from toolrelay.config import process_environment

    return account_location(process_environment(data_dir))
