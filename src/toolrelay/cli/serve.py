"""`toolrelay serve`."""
# ruff: noqa: PLC0415 -- imports wait until the command runs: see the package

from __future__ import annotations

from typing import Annotated

import typer

from toolrelay.cli._output import ConfigFile, DataDirectory, examples

EXAMPLES = examples(
    "toolrelay serve",
    "toolrelay serve --config toolrelay.toml --port 9000",
    "TOOLRELAY_LOG=json TOOLRELAY_LOG_LEVEL=warning toolrelay serve",
)


def serve(
    *,
    config: ConfigFile = None,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="Address to listen on. Any other than loopback needs keys.")
    ] = None,
    port: Annotated[int | None, typer.Option(metavar="PORT", help="Port to listen on. 0: any free port.")] = None,
    data_dir: DataDirectory = None,
) -> None:
    """Start the gateway.

    Prints one line with the URL when it is ready. Without a configuration file it serves the built-in model `demo`. The first
    SIGTERM or Ctrl-C waits for running turns; the second one stops at once.
    """
    from toolrelay.config import from_environment

    # Read the configuration before importing the server: a wrong one is reported sooner.
    settings = from_environment(config, host=host, port=port, data_dir=data_dir)

    from toolrelay.app import serve as run

    raise typer.Exit(run(settings))
