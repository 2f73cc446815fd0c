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


def console(
    *,
    config: ConfigFile = None,
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Address of the gateway. Default: server.host.")] = None,
    port: Annotated[int | None, typer.Option(metavar="PORT", help="Port of the gateway. Default: server.port.")] = None,
    data_dir: DataDirectory = None,
) -> None:
    """Print an address that opens the console, signed in.

    The gateway must run. The address works once, for ten minutes. It needs the gateway's data directory. A gateway that other
    machines can reach has no such address: there the page to sign in with a key is printed.
    """
    from toolrelay.cli._gateway import GatewayClient, configured_url
    from toolrelay.config import from_environment
    from toolrelay.errors import ConfigurationError
    from toolrelay.runtime.approver import read_approver_token
    from toolrelay.runtime.keys import has_stored_keys
    from toolrelay.settings import is_loopback
    from toolrelay.web.tls import make_own_client_context

    settings = from_environment(config, host=host, port=port, data_dir=data_dir)
    url = configured_url(settings, option="--port")
    if not is_loopback(settings.server.host):  # the token must not leave this machine
        if not settings.keys and not has_stored_keys(settings):
            problem = f"{settings.server.host} is not a loopback address. Run this on the machine of the gateway."
            raise ConfigurationError(f"--host: {problem}")
        typer.echo("Other machines can reach this gateway. Sign in with a key:", err=True)
        typer.echo(f"{url}/console/sign-in")
        return
    directory = settings.environment.data_dir
    token = read_approver_token(directory)
    if token is None:
        raise CommandError(f"{directory} is not the data directory of a gateway that has run. Name it with --data-dir.")
    client = GatewayClient(url, token, make_own_client_context(settings))
    typer.echo(f"{url}/?code={client.request('POST', '/console/codes')['code']}")
