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
    file: Annotated[str, typer.Argument(metavar="FILE", help="A recording: JSON, JSON lines, or a folder.", show_default=False)],
    client: Annotated[str, typer.Option(metavar="STYLE", help="What the client understands: openai or use_tool.")] = "",
    wire: Annotated[str, typer.Option(metavar="WIRE", help="What the client speaks: chat or responses.")] = "",
    dialect: Annotated[str, typer.Option(metavar="NAME", help="The dialect in which the model prints its calls.")] = "",
    chunk: Annotated[int, typer.Option(metavar="N", help="Split the model's answer into chunks of N characters.", min=0)] = 0,
) -> None:
    """Show what a client would receive for a recorded exchange.

    Calls no model. Prints the frames to standard output and log lines to standard error.
    """
    from pathlib import Path

    from toolrelay.replay import run

    try:
        run(Path(file), client=client, wire=wire, dialect=dialect, chunk=chunk)
    except ConfigurationError as error:
        typer.echo(f"toolrelay: {error.message}", err=True)
        raise typer.Exit(MISUSED) from None
