"""`toolrelay serve`."""
# ruff: noqa: PLC0415 -- imports wait until the command runs: see the package

from __future__ import annotations

from typing import Annotated

import typer

from toolrelay.cli._output import ConfigFile, DataDirectory, examples
from toolrelay.errors import ConfigurationError

EXAMPLES = examples(
    "toolrelay serve",
    "toolrelay serve --config toolrelay.toml --port 9000",
    "TOOLRELAY_LOG=json TOOLRELAY_LOG_LEVEL=warning toolrelay serve",
    "toolrelay serve --record recordings",
)


def serve(
    *,
    config: ConfigFile = None,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="Address to listen on. Any other than loopback needs keys.")
    ] = None,
    port: Annotated[int | None, typer.Option(metavar="PORT", help="Port to listen on. 0: any free port.")] = None,
    data_dir: DataDirectory = None,
    record: Annotated[
        str | None, typer.Option(metavar="DIRECTORY", help="Record exchanges here for `toolrelay replay`. Content is masked.")
    ] = None,
    record_text: Annotated[bool, typer.Option("--record-text", help="With --record: keep content as it is.")] = False,
) -> None:
    """Start the gateway.

    Prints one line with the URL when it is ready. Without a configuration file it serves the built-in model `demo`, and the model
    `local` if `toolrelay pull` got one. The first SIGTERM or Ctrl-C waits for running turns; the second one stops at once.
    """
    from msgspec import structs

    from toolrelay.config import from_environment
    from toolrelay.settings import RecordSettings

    # Read the configuration before importing the server: a wrong one is reported sooner.
    settings = from_environment(config, host=host, port=port, data_dir=data_dir)
    if record_text and not record:
        raise ConfigurationError("--record-text: name a directory with --record")
    recording = RecordSettings(folder=record or "", with_text=record_text)

    from toolrelay.app import serve as run

    raise typer.Exit(run(structs.replace(settings, recording=recording)))
