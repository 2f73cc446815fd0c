"""`toolrelay replay`."""
# ruff: noqa: PLC0415 -- imports wait until the command runs: see the package

from __future__ import annotations

from typing import Annotated

import typer

from toolrelay.cli._output import MISUSED, examples
from toolrelay.errors import ConfigurationError

EXAMPLES = examples(
    "toolrelay replay docs/replays/seven-blocks.json",
    "toolrelay replay tests/golden/exchanges/one-call --wire responses --chunk 7",
)


def replay(
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Recording: JSON, JSON lines, or a folder.", show_default=False)],
    client: Annotated[str, typer.Option(metavar="KIND", help="Kind of client: openai or use_tool. Default: as recorded.")] = "",
    wire: Annotated[str, typer.Option(metavar="WIRE", help="API of the client: chat or responses. Default: as recorded.")] = "",
    dialect: Annotated[str, typer.Option(metavar="NAME", help="Dialect of printed calls. Default: as recorded.")] = "",
    chunk: Annotated[int, typer.Option(metavar="N", help="Split the answer into chunks of N characters.", min=0)] = 0,
) -> None:
    """Show what a client would receive for a recorded exchange.

    Calls no model. Prints the frames to standard output and log lines to standard error.
    """
    from pathlib import Path

    from toolrelay.cli.replay.player import play_file

    try:
        play_file(Path(file), client=client, wire=wire, dialect=dialect, chunk=chunk)
    except ConfigurationError as error:
        typer.echo(f"toolrelay: {error.message}", err=True)
        raise typer.Exit(MISUSED) from None
