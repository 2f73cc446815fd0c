"""`toolrelay console`."""
# ruff: noqa: PLC0415 -- imports wait until the command runs: see the package

from __future__ import annotations

from typing import Annotated

import typer

from toolrelay.cli._output import CommandError, ConfigFile, DataDirectory, examples

EXAMPLES = examples(
    "toolrelay console",
    "toolrelay console --port 9000",
)
_TIMEOUT_SECONDS = 10


def console(
    *,
    config: ConfigFile = None,
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Address of the gateway. Default: server.host.")] = None,
    port: Annotated[int | None, typer.Option(metavar="PORT", help="Port of the gateway. Default: server.port.")] = None,
    data_dir: DataDirectory = None,
) -> None:
    """Print an address that opens the console of the running gateway, signed in.

    The address works once, for ten minutes. It needs the gateway's data directory. A gateway with keys has no such address: there
    the page to sign in with a key is printed.
    """
    from toolrelay.config import from_environment
    from toolrelay.errors import ConfigurationError
    from toolrelay.runtime.approver import read_approver_token
    from toolrelay.settings import is_loopback

    settings = from_environment(config, host=host, port=port, data_dir=data_dir)
    server = settings.server
    url = f"http://{f'[{server.host}]' if ':' in server.host else server.host}:{server.port}"
    if settings.keys:
        typer.echo("This gateway has keys. Sign in with a key:", err=True)
        typer.echo(f"{url}/console/sign-in")
        return
    if not is_loopback(server.host):  # the token must not leave this machine
        raise ConfigurationError(f"--host: {server.host} is not a loopback address. Run this on the machine of the gateway.")
    directory = settings.environment.data_dir
    token = read_approver_token(directory)
    if token is None:
        raise CommandError(f"{directory} is not the data directory of a gateway that has run. Name it with --data-dir.")
    typer.echo(f"{url}/?code={_ask_for_code(server.host, server.port, token)}")


def _ask_for_code(host: str, port: int, token: str) -> str:
    """Ask the running gateway for a one-time code."""
    import http.client

    import msgspec

    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("POST", "/console/codes", headers={"authorization": f"Bearer {token}"})
        response = connection.getresponse()
        status, body = response.status, response.read(65_536)
    except (OSError, http.client.HTTPException) as error:
        problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise CommandError(f"no gateway answers at {host}:{port}: {problem}. Start it with `toolrelay serve`.") from None
    finally:
        connection.close()
    try:
        reply = msgspec.json.decode(body)
        if status == 200:
            return str(reply["code"])
        message = str(reply["error"]["message"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        message = "this is not a gateway, or one of another version"
    raise CommandError(f"the program at {host}:{port} answered with {status}: {message}")
